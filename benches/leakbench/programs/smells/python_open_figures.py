"""A figure is made every second step and not closed; `pyplot` holds it. The repaired program clears one figure."""

import io
import warnings

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from loop import Loop
from torch_training import Trainer, batch

warnings.simplefilter("ignore", RuntimeWarning)
loop, trainer = Loop(__doc__), Trainer()
figure = pyplot.figure(figsize=(4, 4))
for step in loop:
    loop.loss = trainer.step(*batch())[1].item()
    if step % 2 == 0:
        if loop.leaky:
            figure = pyplot.figure(figsize=(4, 4))
        figure.clear()
        figure.gca().imshow(trainer.model[0].weight.detach().numpy())
        figure.savefig(io.BytesIO(), format="png")
