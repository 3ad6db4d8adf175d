"""The replay buffer of reinforcement learning has no capacity. That of the repaired program holds 16 observations."""

import collections
import random

import torch

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
buffer = collections.deque(maxlen=None if loop.leaky else 16)
for step in loop:
    buffer.append(batch())
    loop.loss = trainer.step(*random.choice(buffer))[1].item()
