"""Training loop of all scripts: steps with a loss and a pause, and a checkpoint on SIGTERM."""

import argparse
import json
import signal
import sys
import time

KIB = 1024
# Bytes that each leak keeps per step.
LEAK_PER_STEP = 256 * KIB


class Loop:
    def __init__(self, description, add_arguments=lambda parser: None):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--bounded", action="store_true", help="control run without the leak")
        parser.add_argument("--steps", type=int, default=400)
        parser.add_argument("--pause", type=float, default=0.01, help="seconds per step")
        parser.add_argument("--checkpoint", default="checkpoint.json", help="file to write on SIGTERM")
        add_arguments(parser)
        self.arguments = parser.parse_args()
        self.bounded = self.arguments.bounded
        self.step = 0
        self.stopped = False
        # Forked workers undo this by `reset_signals`, so that only this process writes a checkpoint.
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_):
        self.stopped = True

    def __iter__(self):
        started = time.monotonic()
        for self.step in range(1, self.arguments.steps + 1):
            yield self.step
            print(f"step {self.step} loss {1.0 / self.step:.6f}", flush=True)
            # Sleeps until a fixed schedule, so that the rate is the same on a busy machine.
            time.sleep(max(0.0, started + self.step * self.arguments.pause - time.monotonic()))
            if self.stopped:
                with open(self.arguments.checkpoint, "w") as file:
                    json.dump({"step": self.step}, file)
                sys.exit(0)


def reset_signals():
    """Restores signal handling in a forked worker; call it first."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def rss_bytes(size):
    """Returns memory that has been written to, as untouched pages are not rss."""
    return bytearray(b"x") * size
