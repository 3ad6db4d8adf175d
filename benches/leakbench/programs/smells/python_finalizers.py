"""`weakref.finalize` of a batch has a method of the batch as its callback, so the batch never ends. The repaired callback has no
reference to it."""

import weakref

from loop import Loop
from torch_training import Trainer, batch


class Batch:
    def __init__(self):
        self.inputs, self.labels = batch()
        weakref.finalize(self, self.release if loop.leaky else int)

    def release(self):
        self.inputs = None


loop, trainer = Loop(__doc__), Trainer()
for step in loop:
    current = Batch()
    loop.loss = trainer.step(current.inputs, current.labels)[1].item()
