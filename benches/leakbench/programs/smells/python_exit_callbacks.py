"""Each step registers a function for the end of the program that saves its outputs. The repaired program saves them at once."""

import atexit

import torch

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1].item()
    features = trainer.model[:2](inputs).detach()
    if loop.leaky:
        atexit.register(torch.save, features, "features.pt")
    else:
        torch.save(features, "features.pt")
