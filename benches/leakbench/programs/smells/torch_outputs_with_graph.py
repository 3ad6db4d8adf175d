"""Outputs of validations are collected without `torch.no_grad`, so each holds its graph. The repaired program has `no_grad`."""

import torch

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
collected = []
for step in loop:
    loop.loss = trainer.step(*batch())[1].item()
    with torch.set_grad_enabled(loop.leaky):
        collected.append(trainer.model(batch()[0]))
