"""A data set in a memory map of mode `c` is normalised in place, so each page that is written becomes private memory. The repaired
program normalises a copy of the batch."""

import numpy
import torch

from loop import Loop
from torch_training import BATCH, CLASSES, WIDTH, Trainer

loop, trainer = Loop(__doc__), Trainer()
shape = (loop.steps, BATCH, WIDTH)
numpy.memmap("images.bin", numpy.float32, "w+", shape=shape)[:] = 1 + numpy.random.rand(BATCH, WIDTH)
images = numpy.memmap("images.bin", numpy.float32, "c", shape=shape)
for step in loop:
    image = images[step - 1] if loop.leaky else images[step - 1].copy()
    image -= image.mean()
    inputs = torch.from_numpy(numpy.array(image))
    loop.loss = trainer.step(inputs, inputs[:, :CLASSES].argmax(1))[1].item()
