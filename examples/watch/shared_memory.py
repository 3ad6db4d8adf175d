"""A batch is passed to another process in shared memory, which is closed but not unlinked, so it remains in /dev/shm even when no
process maps it. The control run unlinks it."""

import os
from multiprocessing import shared_memory

from steps import LEAK_PER_STEP, Loop

if __name__ == "__main__":
    loop = Loop(__doc__)
    names = []
    try:
        for step in loop:
            memory = shared_memory.SharedMemory(f"xrun_watch_{os.getpid()}_{step}", create=True, size=LEAK_PER_STEP)
            memory.buf[:] = b"x" * LEAK_PER_STEP
            if loop.bounded:
                memory.unlink()
            else:
                names.append(memory.name)
            memory.close()
    finally:
        # Cleans up the machine after the demonstration.
        for name in names:
            memory = shared_memory.SharedMemory(name)
            memory.close()
            memory.unlink()
