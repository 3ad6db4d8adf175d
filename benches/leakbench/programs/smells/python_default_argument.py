"""A list that is a default argument collects the batches of all calls. The repaired function makes its list in each call."""

from loop import Loop
from torch_training import Trainer, batch


def take(count, batches=[]):
    batches.extend(batch() for _ in range(count))
    return batches[-count:]


loop, trainer = Loop(__doc__), Trainer()
for step in loop:
    taken, = take(1) if loop.leaky else take(1, [])
    loop.loss = trainer.step(*taken)[1].item()
