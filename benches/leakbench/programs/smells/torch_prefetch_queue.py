"""A thread prepares batches faster than they are consumed, for a queue without a bound. The queue of the repaired program holds four."""

import queue
import threading
import time

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
prepared = queue.Queue(0 if loop.leaky else 4)


def prepare():
    while True:
        prepared.put(batch())
        time.sleep(0.04)


threading.Thread(target=prepare, daemon=True).start()
for step in loop:
    loop.loss = trainer.step(*prepared.get())[1].item()
