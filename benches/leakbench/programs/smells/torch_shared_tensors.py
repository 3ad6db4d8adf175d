"""Results are moved to shared memory for another process and kept. The repaired program reuses one shared tensor."""

import torch

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
shared = torch.zeros_like(batch()[0]).share_memory_()
results = []
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1].item()
    features = trainer.model[:2](inputs).detach()
    if loop.leaky:
        results.append(features.share_memory_())
    else:
        shared.copy_(features)
