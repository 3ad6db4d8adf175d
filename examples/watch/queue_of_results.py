"""A worker produces two results for each one that is consumed; the others accumulate in its queue. In the control run the queue
holds four, so the worker blocks."""

import multiprocessing
import queue
import threading

from steps import LEAK_PER_STEP, Loop, rss_bytes, reset_signals


def produce(requests, consumed, bounded):
    reset_signals()
    waiting = queue.Queue(4 if bounded else 0)

    def consume():
        while consumed.recv() is not None:
            waiting.get()

    threading.Thread(target=consume, daemon=True).start()
    while requests.recv() is not None:
        for _ in range(2):
            waiting.put(rss_bytes(LEAK_PER_STEP))


if __name__ == "__main__":
    loop = Loop(__doc__)
    context = multiprocessing.get_context("fork")
    (worker_requests, requests), (worker_consumed, consumed) = context.Pipe(False), context.Pipe(False)
    arguments = (worker_requests, worker_consumed, loop.bounded)
    producer = context.Process(target=produce, args=arguments, daemon=True)
    producer.start()
    for step in loop:
        requests.send(step)
        # The control run consumes both results, as its worker would block forever otherwise.
        for _ in range(2 if loop.bounded else 1):
            consumed.send(step)
    requests.send(None)
    consumed.send(None)
    producer.join()
