"""A batch is handed to another process through shared memory, which is closed when it has been read. It is there until it is
unlinked, also when no process has it any more. The twin unlinks it."""

import os
from multiprocessing import shared_memory

from steps import KEPT, Loop

if __name__ == "__main__":
    loop = Loop(__doc__)
    names = []
    try:
        for step in loop:
            memory = shared_memory.SharedMemory(f"xrun_watch_{os.getpid()}_{step}", create=True, size=KEPT)
            memory.buf[:] = b"x" * KEPT
            if loop.bounded:
                memory.unlink()
            else:
                names.append(memory.name)
            memory.close()
    finally:
        # Only so that the machine is as it was.
        for name in names:
            memory = shared_memory.SharedMemory(name)
            memory.close()
            memory.unlink()
