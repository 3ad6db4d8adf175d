"""A worker makes two results in the time in which one is taken. What waits, waits in the worker. The twin's queue has room
for four: the worker waits."""

import multiprocessing
import queue
import threading

from steps import KEPT, Loop, filled, worker


def produce(turns, taken, bounded):
    worker()
    waiting = queue.Queue(4 if bounded else 0)

    def take():
        while taken.recv() is not None:
            waiting.get()

    threading.Thread(target=take, daemon=True).start()
    while turns.recv() is not None:
        for _ in range(2):
            waiting.put(filled(KEPT))


if __name__ == "__main__":
    loop = Loop(__doc__)
    context = multiprocessing.get_context("fork")
    (turns_of_worker, turns), (taken_of_worker, taken) = context.Pipe(False), context.Pipe(False)
    arguments = (turns_of_worker, taken_of_worker, loop.bounded)
    producer = context.Process(target=produce, args=arguments, daemon=True)
    producer.start()
    for step in loop:
        turns.send(step)
        # The twin's worker must not wait for ever.
        for _ in range(2 if loop.bounded else 1):
            taken.send(step)
    turns.send(None)
    taken.send(None)
    producer.join()
