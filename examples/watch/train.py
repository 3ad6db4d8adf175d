"""Small trainer that needs only python3: fits a line to noisy points, and prints steps and losses.

It saves a checkpoint on SIGTERM, every `--save-every` steps and at the end; `--resume` continues from it.
"""

import argparse
import json
import os
import random
import signal
import time


def points(seed, count):
    """Yields points around y = 3 x - 1."""
    generator = random.Random(seed)
    for _ in range(count):
        x = generator.uniform(-1.0, 1.0)
        yield x, 3.0 * x - 1.0 + generator.gauss(0.0, 0.1)


def save(path, state):
    with open(path + ".part", "w") as file:
        json.dump(state, file)
    os.replace(path + ".part", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.01, help="seconds per step")
    parser.add_argument("--checkpoint", default="checkpoint.json")
    parser.add_argument("--save-every", type=int, default=50, help="steps between checkpoints; 0: only at the end")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    parser.add_argument("--leak", action="store_true", help="leak 1 MiB per step")
    parser.add_argument("--fail-at", type=int, default=0, help="step that exits with status 1; 0: none")
    arguments = parser.parse_args()

    state = {"step": 0, "weight": 0.0, "bias": 0.0}
    if arguments.resume:
        with open(arguments.checkpoint) as file:
            state = json.load(file)

    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    leak = []
    for step in range(state["step"] + 1, arguments.steps + 1):
        batch = list(points(arguments.seed * 1_000_003 + step, arguments.batch_size))
        errors = [(state["weight"] * x + state["bias"] - y, x) for x, y in batch]
        rate = 2.0 * arguments.learning_rate / len(batch)
        state["weight"] -= rate * sum(error * x for error, x in errors)
        state["bias"] -= rate * sum(error for error, _ in errors)
        state["step"] = step
        loss = sum(error * error for error, _ in errors) / len(batch)
        print(f"step {step} loss {loss:.6f} distance {abs(state['weight'] - 3) + abs(state['bias'] + 1):.6f}", flush=True)
        if arguments.leak:
            leak.append(bytearray(b"x") * 1024 * 1024)
        if step == arguments.fail_at:
            raise SystemExit(1)
        if stopped or (arguments.save_every and step % arguments.save_every == 0):
            save(arguments.checkpoint, state)
        if stopped:
            return
        time.sleep(arguments.pause)
    save(arguments.checkpoint, state)


if __name__ == "__main__":
    main()
