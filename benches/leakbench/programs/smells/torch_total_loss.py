"""The loss of an epoch is summed as a tensor, so the sum holds the history of every step. The repaired program adds numbers."""

import torch

from loop import Loop
from torch_training import CLASSES

# A step of a recurrent network has thousands of nodes, which remain when their tensors have been freed by `backward`.
CELLS = 300

loop = Loop(__doc__)
cell = torch.nn.RNNCell(CLASSES, CLASSES)
optimizer = torch.optim.SGD(cell.parameters(), lr=1e-3)
total = 0.0
for step in loop:
    optimizer.zero_grad()
    hidden = torch.zeros(8, CLASSES)
    for _ in range(CELLS):
        hidden = cell(torch.randn(8, CLASSES), hidden)
    loss = hidden.square().mean()
    loss.backward()
    optimizer.step()
    total = total + (loss if loop.leaky else loss.item())
    loop.loss = loss.item()
