"""Forked workers read a list of the parent. Reading updates reference counts, so copy-on-write copies the pages one by one
(pytorch#13246). The control run reads an array, whose elements have no reference counts."""

import array
import multiprocessing

from steps import KIB, Loop, reset_signals

WORKERS = 2
# Size of a Python int that is not cached; consecutive ones are adjacent in memory.
INT_BYTES = 32


def read(data, turns, count):
    reset_signals()
    at = 0
    while turns.get() is not None:
        for value in data[at:at + count]:
            value + 1
        at += count


if __name__ == "__main__":
    loop = Loop(__doc__)
    # Each of the two workers copies 128 KiB per step.
    count = 128 * KIB // INT_BYTES
    numbers = range(10**6, 10**6 + count * loop.arguments.steps)
    data = array.array("q", numbers) if loop.bounded else list(numbers)
    context = multiprocessing.get_context("fork")
    turns = [context.Queue(1) for _ in range(WORKERS)]
    workers = [context.Process(target=read, args=(data, turn, count), daemon=True) for turn in turns]
    for process in workers:
        process.start()
    for step in loop:
        for turn in turns:
            turn.put(step)
    for turn in turns:
        turn.put(None)
    for process in workers:
        process.join()
