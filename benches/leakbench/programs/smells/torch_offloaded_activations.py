"""Activations are offloaded by `saved_tensors_hooks` to a table, from which the backward pass reads but removes nothing. The repaired
hook removes them."""

import itertools

import torch

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
offloaded, keys = {}, itertools.count()


def pack(tensor):
    key = next(keys)
    offloaded[key] = tensor.clone()
    return key


def unpack(key):
    return offloaded[key] if loop.leaky else offloaded.pop(key)


for step in loop:
    inputs, labels = batch()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loop.loss = trainer.step(inputs[:128], labels[:128])[1].item()
