"""Pairs of programs, one with a leak and one without, each a function that trains for some steps."""

import argparse
import time

PAIRS = {}
STEPS, SECONDS_PER_STEP = 300, 0.06


def pair(line=(), holder=(), native=False, **facts):
    """Registers a program with its right answer: fragments of the line, names of the holder; `native` if Python cannot see it."""

    def register(function):
        PAIRS[function.__name__] = (function, {"line": line, "holder": holder, "native": native, **facts})
        return function

    return register


def steps(count=STEPS):
    """Yields the steps on a fixed schedule, and prints each."""
    started = time.monotonic()
    for step in range(1, count + 1):
        yield step
        print(f"step {step} loss {1 / step:.4f}", flush=True)
        time.sleep(max(0.0, started + step * SECONDS_PER_STEP - time.monotonic()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PAIRS)
    parser.add_argument("--leaky", action="store_true")
    arguments = parser.parse_args()
    PAIRS[arguments.name][0](arguments.leaky)


def small_model(width=256):
    """A network of three layers with its optimiser."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def batch(rows=256, width=256):
    import torch

    inputs = torch.randn(rows, width)
    return inputs, inputs[:, :10].argmax(1)


def update(model, optimizer, inputs, labels):
    from torch.nn import functional

    optimizer.zero_grad()
    outputs = model(inputs)
    loss = functional.cross_entropy(outputs, labels)
    loss.backward()
    optimizer.step()
    return outputs, loss
