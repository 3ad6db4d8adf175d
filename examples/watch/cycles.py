"""Objects in reference cycles live until the garbage collector runs, which here it does only when asked. The control run collects after each
step; `--collect-every N` does so after N steps."""

import gc

from steps import LEAK_PER_STEP, Loop, rss_bytes


class Node:
    """A tensor and its gradient function that refer to each other."""

    def __init__(self):
        self.values = rss_bytes(LEAK_PER_STEP)
        self.owner = self


if __name__ == "__main__":
    loop = Loop(__doc__, lambda parser: parser.add_argument("--collect-every", type=int, default=0, metavar="N"))
    collect_every = 1 if loop.bounded else loop.arguments.collect_every
    gc.disable()
    for step in loop:
        Node()
        if collect_every and step % collect_every == 0:
            gc.collect()
