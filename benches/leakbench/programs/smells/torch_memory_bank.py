"""A memory bank of embeddings is a buffer to which each step concatenates. The repaired bank keeps the newest rows."""

import torch

from loop import Loop
from torch_training import WIDTH, Trainer, batch

ROWS = 4096

loop, trainer = Loop(__doc__), Trainer()
trainer.model.register_buffer("bank", torch.empty(0, WIDTH))
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1].item()
    embeddings = trainer.model[:2](inputs).detach()
    bank = torch.cat([trainer.model.bank, embeddings])
    trainer.model.bank = bank if loop.leaky else bank[-ROWS:].clone()
