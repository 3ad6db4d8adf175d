"""A hook on a parameter masks its gradient; each step adds another one with its own mask. The repaired program removes the hook."""

import torch

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer(torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)))
weight = trainer.model[0].weight
for step in loop:
    mask = (torch.rand_like(weight) < 0.999).float()
    hook = weight.register_hook(lambda gradient, mask=mask: gradient * mask)
    loop.loss = trainer.step(*batch())[1].item()
    if not loop.leaky:
        hook.remove()
