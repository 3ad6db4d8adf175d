"""A C library allocates and does not free, which Python's memory tools do not see. The control run frees."""

import ctypes

from steps import LEAK_PER_STEP, Loop

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes = [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

if __name__ == "__main__":
    loop = Loop(__doc__)
    for step in loop:
        address = library.malloc(LEAK_PER_STEP)
        ctypes.memset(address, 1, LEAK_PER_STEP)
        if loop.bounded:
            library.free(address)
