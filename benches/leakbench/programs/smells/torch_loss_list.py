"""Validation losses are kept as tensors, each with the graph of its forward pass. The repaired program keeps numbers."""

from torch.nn import functional

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
validation_losses = []
for step in loop:
    loop.loss = trainer.step(*batch())[1].item()
    inputs, labels = batch()
    loss = functional.cross_entropy(trainer.model(inputs), labels)
    validation_losses.append(loss if loop.leaky else loss.item())
