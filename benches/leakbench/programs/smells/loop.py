"""Training loop of all programs: steps with a loss, on a fixed schedule."""

import argparse
import multiprocessing
import os
import sys
import time

STEPS = 180
SECONDS_PER_STEP = 0.1


class Loop:
    """Iterates over the steps, and prints `step N loss X` after each; `loss` is set by the program."""

    def __init__(self, description):
        parser = argparse.ArgumentParser(description=description)
        mode = parser.add_mutually_exclusive_group(required=True)
        mode.add_argument("--leaky", action="store_true", help="program with the smell")
        mode.add_argument("--repaired", action="store_true", help="the same program without the smell")
        parser.add_argument("--steps", type=int, default=STEPS)
        arguments = parser.parse_args()
        self.leaky, self.steps = arguments.leaky, arguments.steps
        self.loss = 0.0

    def __iter__(self):
        started = time.monotonic()
        for step in range(1, self.steps + 1):
            yield step
            # Reading the number before the pause keeps no tensor, and so no graph, in the loop.
            loss, self.loss = float(self.loss), 0.0
            print(f"step {step} loss {loss:.4f}", flush=True)
            # Sleeps until a fixed schedule, so that the rate is the same on a busy machine.
            time.sleep(max(0.0, started + step * SECONDS_PER_STEP - time.monotonic()))
        # Time for a last measurement from outside.
        time.sleep(2)
        for child in multiprocessing.active_children():
            child.kill()
        sys.stdout.flush()
        # Skips destructors, which would free the leak after the last step.
        os._exit(0)
