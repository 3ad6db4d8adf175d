"""A C library allocates the result of each step and the binding does not free it. The repaired binding frees it."""

import ctypes

from loop import Loop
from torch_training import Trainer, batch

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes = [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

loop, trainer = Loop(__doc__), Trainer()
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1].item()
    buffer = library.malloc(inputs.nbytes)
    ctypes.memmove(buffer, inputs.data_ptr(), inputs.nbytes)
    if not loop.leaky:
        library.free(buffer)
