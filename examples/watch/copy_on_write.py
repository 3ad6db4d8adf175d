"""Workers read a list that was made before they were forked. Reading counts references, which writes: page by page they
come to have a copy each (pytorch#13246). The twin reads an array, whose elements have no counts."""

import array
import multiprocessing

from steps import KIB, Loop, worker

WORKERS = 2
# An int of Python that is no small one needs 32 bytes, and lies beside the one made before it.
BYTES_OF_AN_INT = 32


def read(data, turns, count):
    worker()
    at = 0
    while turns.get() is not None:
        for value in data[at:at + count]:
            value + 1
        at += count


if __name__ == "__main__":
    loop = Loop(__doc__)
    # Two workers that each copy 128 KiB a step.
    count = 128 * KIB // BYTES_OF_AN_INT
    numbers = range(10**6, 10**6 + count * loop.arguments.steps)
    data = array.array("q", numbers) if loop.bounded else list(numbers)
    context = multiprocessing.get_context("fork")
    turns = [context.Queue(1) for _ in range(WORKERS)]
    workers = [context.Process(target=read, args=(data, turn, count), daemon=True) for turn in turns]
    for one in workers:
        one.start()
    for step in loop:
        for turn in turns:
            turn.put(step)
    for turn in turns:
        turn.put(None)
    for one in workers:
        one.join()
