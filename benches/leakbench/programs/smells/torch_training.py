"""Small PyTorch classifier on random data, which the programs train."""

import torch
from torch import nn
from torch.nn import functional

# Two programs run at once on two cores.
torch.set_num_threads(1)
torch.manual_seed(1)

BATCH, WIDTH, CLASSES = 512, 256, 10


def network():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))


def batch():
    """Returns inputs (512 KiB) and labels."""
    inputs = torch.randn(BATCH, WIDTH)
    return inputs, inputs[:, :CLASSES].argmax(1)


class Trainer:
    def __init__(self, model=None):
        self.model = model or network()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self, inputs, labels):
        """Updates the weights once, and returns the outputs and the loss."""
        self.optimizer.zero_grad()
        outputs = self.model(inputs)
        loss = functional.cross_entropy(outputs, labels)
        loss.backward()
        self.optimizer.step()
        return outputs, loss
