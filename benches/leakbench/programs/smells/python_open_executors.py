"""Each step makes a thread pool and does not shut it down; its thread holds a scratch buffer. The repaired program shuts it down."""

import concurrent.futures
import threading

import torch

from loop import Loop
from torch_training import Trainer, batch

local = threading.local()


def augment(inputs):
    local.scratch = torch.empty_like(inputs)
    return torch.mul(inputs, 1.01, out=local.scratch).clone()


loop, trainer = Loop(__doc__), Trainer()
executors = []
for step in loop:
    inputs, labels = batch()
    executors.append(concurrent.futures.ThreadPoolExecutor(1))
    inputs = executors[-1].submit(augment, inputs).result()
    if not loop.leaky:
        executors.pop().shutdown()
    loop.loss = trainer.step(inputs, labels)[1].item()
