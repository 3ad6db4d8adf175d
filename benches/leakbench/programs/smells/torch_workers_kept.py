"""Each epoch makes a DataLoader with persistent workers, and the old ones remain. The repaired program makes one DataLoader."""

import torch
from torch.utils.data import DataLoader, Dataset

from loop import Loop
from torch_training import Trainer, batch

STEPS_PER_EPOCH = 10


class Images(Dataset):
    scratch = None

    def __len__(self):
        return STEPS_PER_EPOCH

    def __getitem__(self, item):
        # 4 MiB of each worker.
        self.scratch = torch.ones(1 << 20) if self.scratch is None else self.scratch
        return self.scratch[:4].clone()


def make_loader():
    return DataLoader(Images(), batch_size=None, num_workers=1, persistent_workers=True, multiprocessing_context="fork")


loop, trainer = Loop(__doc__), Trainer()
loaders = [make_loader()]
for step in loop:
    if step % STEPS_PER_EPOCH == 1:
        if loop.leaky:
            loaders.append(make_loader())
        iterator = iter(loaders[-1])
    next(iterator)
    loop.loss = trainer.step(*batch())[1].item()
