"""Gradients of all steps are kept, to estimate their noise. The repaired program keeps a running mean."""

import torch

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
history, mean = [], None
for step in loop:
    loop.loss = trainer.step(*batch())[1].item()
    gradient = torch.cat([parameter.grad.flatten() for parameter in trainer.model.parameters()])
    if loop.leaky:
        history.append(gradient)
    else:
        mean = gradient if mean is None else 0.9 * mean + 0.1 * gradient
