"""Each step adds a handler to the logger, so the text of all logs grows with the square of the steps. The repaired program adds one
handler, which writes to a file."""

import io
import logging

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
logger = logging.getLogger("training")
logger.propagate = False
logger.setLevel(logging.INFO)
if not loop.leaky:
    logger.addHandler(logging.FileHandler("training.log"))
for step in loop:
    if loop.leaky:
        logger.addHandler(logging.StreamHandler(io.StringIO()))
    loop.loss = trainer.step(*batch())[1].item()
    logger.info("biases at step %d: %s", step, trainer.model[0].bias.tolist())
