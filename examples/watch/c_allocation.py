"""A library in C allocates and does not free. No tool of Python sees it. The twin frees."""

import ctypes

from steps import KEPT, Loop

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes = [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

if __name__ == "__main__":
    loop = Loop(__doc__)
    for step in loop:
        place = library.malloc(KEPT)
        ctypes.memset(place, 1, KEPT)
        if loop.bounded:
            library.free(place)
