"""The garbage collector is disabled for speed, and objects with reference cycles hold activations. The repaired program collects every
ten steps."""

import gc

from loop import Loop
from torch_training import Trainer, batch


class Probe:
    def __init__(self, activations):
        self.activations = activations
        self.report = self.mean

    def mean(self):
        return self.activations.mean().item()


loop, trainer = Loop(__doc__), Trainer()
gc.disable()
# Leaves out the objects of the imports, so that a collection takes milliseconds.
gc.collect()
gc.freeze()
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1].item()
    Probe(trainer.model[:2](inputs).detach()).report()
    if not loop.leaky and step % 10 == 0:
        gc.collect()
