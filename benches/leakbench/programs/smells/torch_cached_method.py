"""`functools.lru_cache` on a method holds every instance. The repaired class has a cached property."""

import functools

import torch

from loop import Loop
from torch_training import Trainer, batch


class Augmentation:
    def __init__(self, shape):
        self.noise = 0.1 * torch.randn(shape)

    @functools.lru_cache(maxsize=None)
    def shared_scale(self):
        return 1 / (1 + self.noise.std().item())

    @functools.cached_property
    def own_scale(self):
        return 1 / (1 + self.noise.std().item())

    def __call__(self, inputs):
        return (inputs + self.noise) * (self.shared_scale() if loop.leaky else self.own_scale)


loop, trainer = Loop(__doc__), Trainer()
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(Augmentation(inputs.shape)(inputs), labels)[1].item()
