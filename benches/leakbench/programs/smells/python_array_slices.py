"""The first row of each array is kept as a slice, which holds its whole array. The repaired program copies the row."""

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
rows = []
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1].item()
    normalised = inputs.numpy() / 2
    rows.append(normalised[0] if loop.leaky else normalised[0].copy())
