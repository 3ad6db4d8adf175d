"""The data set caches each decoded sample, in each worker. The cache of the repaired data set holds 8 samples."""

import collections

import torch
from torch.utils.data import DataLoader, Dataset

from loop import Loop
from torch_training import BATCH, CLASSES, WIDTH, Trainer


class Images(Dataset):
    def __init__(self, items, capacity):
        self.items, self.capacity = items, capacity
        self.cache = collections.OrderedDict()

    def __len__(self):
        return self.items

    def __getitem__(self, item):
        if item not in self.cache:
            self.cache[item] = torch.randn(BATCH, WIDTH)
            if len(self.cache) > self.capacity:
                self.cache.popitem(last=False)
        return self.cache[item]


loop, trainer = Loop(__doc__), Trainer()
images = Images(loop.steps + 8, loop.steps + 8 if loop.leaky else 8)
loader = iter(DataLoader(images, batch_size=None, num_workers=2, multiprocessing_context="fork"))
for step in loop:
    inputs = next(loader)
    loop.loss = trainer.step(inputs, inputs[:, :CLASSES].argmax(1))[1].item()
