"""The leak keeps a copy of each block that it reads from a mapped file. The control run only reads: RSS grows with each page, but it
is no leak, as the kernel can drop the pages."""

import mmap
import tempfile

from steps import LEAK_PER_STEP, Loop

if __name__ == "__main__":
    loop = Loop(__doc__)
    with tempfile.NamedTemporaryFile(dir=".") as file:
        block = b"x" * LEAK_PER_STEP
        for _ in range(loop.arguments.steps):
            file.write(block)
        file.flush()
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        view, total, copies = memoryview(data), 0, []
        for step in loop:
            block_view = view[(step - 1) * LEAK_PER_STEP:step * LEAK_PER_STEP]
            total += sum(block_view[::4096])
            if not loop.bounded:
                copies.append(bytearray(block_view))
