"""`backward(create_graph=True)` makes a reference cycle between a parameter and its gradient, so the learner of each task remains. The
repaired program calls `autograd.grad`."""

import torch
from torch.nn import functional

from loop import Loop
from torch_training import Trainer, batch, network

loop, trainer = Loop(__doc__), Trainer()
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1].item()
    learner = network()
    loss = functional.cross_entropy(learner(inputs[:64]), labels[:64])
    if loop.leaky:
        loss.backward(create_graph=True)
        gradients = [parameter.grad for parameter in learner.parameters()]
    else:
        gradients = torch.autograd.grad(loss, learner.parameters(), create_graph=True)
    norm = sum(gradient.square().sum() for gradient in gradients).item()
    del learner, gradients, loss
