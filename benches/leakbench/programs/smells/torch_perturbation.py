"""A universal perturbation is updated without `detach`, so it holds the graph of all its updates. The repaired program detaches it."""

import torch
from torch.nn import functional

from loop import Loop
from torch_training import batch, network

loop, model = Loop(__doc__), network()
delta = torch.zeros_like(batch()[0], requires_grad=True)
for step in loop:
    inputs, labels = batch()
    loss = functional.cross_entropy(model(inputs + delta), labels)
    gradient, = torch.autograd.grad(loss, delta)
    delta = (delta + 0.01 * gradient.sign()).clamp(-0.1, 0.1)
    if not loop.leaky:
        delta = delta.detach().requires_grad_()
    loop.loss = loss.item()
