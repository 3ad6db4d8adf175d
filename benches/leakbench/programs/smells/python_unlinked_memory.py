"""Each batch is placed in a segment of shared memory, which is closed and never unlinked. The repaired program unlinks it."""

import numpy
from multiprocessing.shared_memory import SharedMemory

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
for step in loop:
    inputs, labels = batch()
    segment = SharedMemory(create=True, size=inputs.nbytes)
    numpy.ndarray(inputs.shape, numpy.float32, segment.buf)[:] = inputs.numpy()
    loop.loss = trainer.step(inputs, labels)[1].item()
    segment.close()
    if not loop.leaky:
        segment.unlink()
