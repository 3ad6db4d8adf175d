"""Adapted weights of meta-learning are carried from task to task with the graph of all adaptations. The repaired program detaches
them."""

import torch
from torch.nn import functional

from loop import Loop
from torch_training import CLASSES, WIDTH, batch

loop = Loop(__doc__)
weights = torch.zeros(WIDTH, CLASSES, requires_grad=True)
for step in loop:
    inputs, labels = batch()
    loss = functional.cross_entropy(inputs @ weights, labels)
    gradient, = torch.autograd.grad(loss, weights, create_graph=True)
    weights = weights - 0.1 * gradient
    if not loop.leaky:
        weights = weights.detach().requires_grad_()
    loop.loss = loss.item()
