"""The loop that all scripts share: steps with a loss, a pause, and a checkpoint when SIGTERM comes."""

import argparse
import json
import signal
import sys
import time

KIB = 1024
# What each leak keeps of each step.
KEPT = 256 * KIB


class Loop:
    def __init__(self, description):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--bounded", action="store_true", help="the twin that keeps nothing")
        parser.add_argument("--steps", type=int, default=400)
        parser.add_argument("--pause", type=float, default=0.01, help="seconds that a step lasts")
        parser.add_argument("--checkpoint", default="checkpoint.json", help="written when SIGTERM comes")
        self.arguments = parser.parse_args()
        self.bounded = self.arguments.bounded
        self.step = 0
        self.stopped = False
        # A worker that is forked later must not write one, too: `worker` takes it back.
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_):
        self.stopped = True

    def __iter__(self):
        began = time.monotonic()
        for self.step in range(1, self.arguments.steps + 1):
            yield self.step
            print(f"step {self.step} loss {1.0 / self.step:.6f}", flush=True)
            # By a timetable: a step that took longer is made up for, so that the rate is the same on a busy machine.
            time.sleep(max(0.0, began + self.step * self.arguments.pause - time.monotonic()))
            if self.stopped:
                with open(self.arguments.checkpoint, "w") as file:
                    json.dump({"step": self.step}, file)
                sys.exit(0)


def worker():
    """To be called first in a process that was forked."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def filled(size):
    """Memory that was written to: pages that were only asked for are not there yet."""
    return bytearray(b"x") * size
