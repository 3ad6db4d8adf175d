"""Each step opens a SummaryWriter for its images and does not close it. The repaired program closes it."""

import torch
from torch.utils.tensorboard import SummaryWriter

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
writers = []
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1].item()
    writer = SummaryWriter(f"events/{step}")
    writer.add_image("inputs", torch.randint(256, (3, 512, 512), dtype=torch.uint8), step)
    if loop.leaky:
        writers.append(writer)
    else:
        writer.close()
