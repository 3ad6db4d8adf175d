"""A figure is drawn every second step and not closed; `pyplot` holds it. The repaired program closes it."""

import io
import warnings

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from loop import Loop
from torch_training import Trainer, batch

warnings.simplefilter("ignore", RuntimeWarning)
loop, trainer = Loop(__doc__), Trainer()
for step in loop:
    loop.loss = trainer.step(*batch())[1].item()
    if step % 2 == 0:
        figure = pyplot.figure(figsize=(4, 4))
        pyplot.imshow(trainer.model[0].weight.detach().numpy())
        figure.savefig(io.BytesIO(), format="png")
        if not loop.leaky:
            pyplot.close(figure)
