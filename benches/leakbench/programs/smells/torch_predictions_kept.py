"""Predictions of each validation are kept, to compute a metric at the end. The repaired program accumulates the metric."""

import torch

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
decoder = torch.nn.Linear(10, 1024)
predictions, correct = [], 0
for step in loop:
    loop.loss = trainer.step(*batch())[1].item()
    if step % 4 == 0:
        with torch.no_grad():
            maps = decoder(trainer.model(batch()[0]))
        if loop.leaky:
            predictions.append(maps)
        else:
            correct += int((maps > 0).sum())
