"""The profiler records the whole training. That of the repaired program has a schedule and records two of the first steps."""

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
few = schedule(wait=1, warmup=1, active=2, repeat=1)
profiler = profile(activities=[ProfilerActivity.CPU], with_stack=True, record_shapes=True, schedule=None if loop.leaky else few)
profiler.start()
for step in loop:
    for _ in range(4):
        inputs, labels = batch()
        loop.loss = trainer.step(inputs[:64], labels[:64])[1].item()
    profiler.step()
