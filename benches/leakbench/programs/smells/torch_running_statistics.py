"""A normalisation layer updates its running variance with a tensor that has a graph. The repaired layer does so without gradients."""

import torch
from torch import nn

from loop import Loop
from torch_training import CLASSES, WIDTH, Trainer, batch


class Normalisation(nn.Module):
    def __init__(self):
        super().__init__()
        self.variance = torch.ones(WIDTH)

    def forward(self, inputs):
        with torch.set_grad_enabled(loop.leaky):
            self.variance = 0.9 * self.variance + 0.1 * inputs.var(0)
        return (inputs - inputs.mean(0)) / (inputs.std(0) + 1e-5)


loop = Loop(__doc__)
trainer = Trainer(nn.Sequential(nn.Linear(WIDTH, WIDTH), Normalisation(), nn.ReLU(), nn.Linear(WIDTH, CLASSES)))
for step in loop:
    loop.loss = trainer.step(*batch())[1].item()
