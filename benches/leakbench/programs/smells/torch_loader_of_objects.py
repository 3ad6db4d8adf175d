"""Workers of a DataLoader read a list of Python objects; reading updates reference counts, so they copy its pages. The repaired data set
is an array of numbers."""

import array

import torch
from torch.utils.data import DataLoader, Dataset

from loop import Loop
from torch_training import Trainer, batch

# Objects of 32 bytes that one item reads.
OBJECTS = 16_000


class Records(Dataset):
    def __init__(self, items, leaky):
        numbers = range(10**6, 10**6 + items * OBJECTS)
        self.records = list(numbers) if leaky else array.array("q", numbers)
        self.items = items

    def __len__(self):
        return self.items

    def __getitem__(self, item):
        records = self.records[item * OBJECTS:(item + 1) * OBJECTS]
        return torch.tensor([float(sum(records))])


loop, trainer = Loop(__doc__), Trainer()
loader = iter(DataLoader(Records(loop.steps + 8, loop.leaky), batch_size=1, num_workers=2, multiprocessing_context="fork"))
for step in loop:
    next(loader)
    loop.loss = trainer.step(*batch())[1].item()
