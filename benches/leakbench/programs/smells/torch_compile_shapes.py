"""A compiled model is compiled again for each batch size. The repaired program compiles with dynamic shapes."""

import torch
from torch import _dynamo

from loop import Loop
from torch_training import BATCH, Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
_dynamo.config.recompile_limit = _dynamo.config.accumulated_recompile_limit = 1000
compiled = torch.compile(trainer.model, backend="eager", dynamic=not loop.leaky)
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1].item()
    with torch.no_grad():
        compiled(inputs[:BATCH - step])
