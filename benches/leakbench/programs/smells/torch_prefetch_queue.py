"""A thread prepares two batches for each that is consumed, for a queue without a bound. The queue of the repaired program holds four."""

import queue
import threading

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
prepared = queue.Queue(0 if loop.leaky else 4)
consumed = threading.Semaphore(4)


def prepare():
    while True:
        consumed.acquire()
        prepared.put(batch())
        prepared.put(batch())


threading.Thread(target=prepare, daemon=True).start()
for step in loop:
    loop.loss = trainer.step(*prepared.get())[1].item()
    consumed.release()
