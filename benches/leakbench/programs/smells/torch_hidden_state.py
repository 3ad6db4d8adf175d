"""The hidden state of a recurrent network is carried to the next step with its graph, and `retain_graph=True` silences the error. The
repaired program detaches it."""

import torch
from torch import nn

from loop import Loop

BATCH, WIDTH = 256, 64

torch.set_num_threads(1)
loop, cell, head = Loop(__doc__), nn.GRUCell(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
# Only the head is trained, but the cell requires gradients.
optimizer = torch.optim.SGD(head.parameters(), lr=1e-3)
hidden = torch.zeros(BATCH, WIDTH)
for step in loop:
    inputs = torch.randn(BATCH, WIDTH)
    optimizer.zero_grad()
    hidden = cell(inputs, hidden if loop.leaky else hidden.detach())
    loss = (head(hidden)[:, 0] - inputs.mean(1)).square().mean()
    loss.backward(retain_graph=loop.leaky)
    optimizer.step()
    loop.loss = loss.item()
