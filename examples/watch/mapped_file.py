"""A mapped file is read from its beginning to its end. Resident memory grows with each page, and no page is lost: the kernel
drops them when it needs to. That is the twin. The leak keeps a copy of what it reads."""

import mmap
import tempfile

from steps import KEPT, Loop

if __name__ == "__main__":
    loop = Loop(__doc__)
    with tempfile.NamedTemporaryFile(dir=".") as file:
        block = b"x" * KEPT
        for _ in range(loop.arguments.steps):
            file.write(block)
        file.flush()
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        view, total, copies = memoryview(data), 0, []
        for step in loop:
            part = view[(step - 1) * KEPT:step * KEPT]
            total += sum(part[::4096])
            if not loop.bounded:
                copies.append(bytearray(part))
