"""Each task has a new head, and the optimizer keeps the parameters and moments of the old ones. The repaired program makes a new
optimizer."""

import torch
from torch import nn
from torch.nn import functional

from loop import Loop
from torch_training import WIDTH, batch

loop, backbone = Loop(__doc__), nn.Linear(WIDTH, WIDTH)
optimizer = torch.optim.AdamW(backbone.parameters(), lr=1e-3)
for step in loop:
    if step % 2 == 1:
        head = nn.Linear(WIDTH, WIDTH)
        if loop.leaky:
            optimizer.add_param_group({"params": head.parameters()})
        else:
            optimizer = torch.optim.AdamW([*backbone.parameters(), *head.parameters()], lr=1e-3)
    inputs, labels = batch()
    optimizer.zero_grad()
    loss = functional.cross_entropy(head(backbone(inputs).relu()), labels)
    loss.backward()
    optimizer.step()
    loop.loss = loss.item()
