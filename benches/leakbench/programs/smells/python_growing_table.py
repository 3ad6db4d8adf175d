"""A table of features is extended by `concat` in each step. The repaired table has one row of means per step."""

import pandas

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
table = pandas.DataFrame()
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1].item()
    features = pandas.DataFrame(trainer.model[:2](inputs).detach().numpy())
    table = pandas.concat([table, features if loop.leaky else features.mean().to_frame().T])
