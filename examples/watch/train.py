"""A small trainer that needs nothing but python3: it fits a line through noisy points, and prints steps and losses.

It saves when SIGTERM comes, every `--save-every` steps, and at the end; `--resume` goes on from there.
"""

import argparse
import json
import os
import random
import signal
import time


def points(seed, count):
    """Points around y = 3 x - 1."""
    draw = random.Random(seed)
    for _ in range(count):
        x = draw.uniform(-1.0, 1.0)
        yield x, 3.0 * x - 1.0 + draw.gauss(0.0, 0.1)


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
    parser.add_argument("--pause", type=float, default=0.01, help="seconds that a step lasts")
    parser.add_argument("--checkpoint", default="checkpoint.json")
    parser.add_argument("--save-every", type=int, default=50, help="steps; 0 saves only at the end")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--leak", action="store_true", help="keep what every step has read")
    parser.add_argument("--fail-at", type=int, default=0, help="the step that fails, as a crash would; 0 fails never")
    arguments = parser.parse_args()

    state = {"step": 0, "weight": 0.0, "bias": 0.0}
    if arguments.resume:
        with open(arguments.checkpoint) as file:
            state = json.load(file)

    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    kept = []
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
            kept.append(bytearray(b"x") * 1024 * 1024)
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
