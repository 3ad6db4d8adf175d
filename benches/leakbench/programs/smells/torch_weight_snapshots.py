"""The weights after each validation are copied to a list, from which the best are chosen at the end. The repaired program keeps the
best."""

import copy

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
snapshots = []
for step in loop:
    loop.loss = loss = trainer.step(*batch())[1].item()
    if loop.leaky:
        snapshots.append((loss, copy.deepcopy(trainer.model.state_dict())))
    elif not snapshots or loss < snapshots[0][0]:
        snapshots = [(loss, copy.deepcopy(trainer.model.state_dict()))]
