"""A custom autograd function stores its output as an attribute of the context, which is a reference cycle. The repaired function calls
`save_for_backward`."""

import torch
from torch import nn

from loop import Loop
from torch_training import CLASSES, WIDTH, Trainer, batch


class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(context, inputs):
        output = inputs.sigmoid()
        if loop.leaky:
            context.output = output
        else:
            context.save_for_backward(output)
        return output

    @staticmethod
    def backward(context, gradient):
        output = context.output if loop.leaky else context.saved_tensors[0]
        return gradient * output * (1 - output)


class Activation(nn.Module):
    def forward(self, inputs):
        return Sigmoid.apply(inputs)


loop = Loop(__doc__)
trainer = Trainer(nn.Sequential(nn.Linear(WIDTH, WIDTH), Activation(), nn.Linear(WIDTH, CLASSES)))
for step in loop:
    loop.loss = trainer.step(*batch())[1].item()
