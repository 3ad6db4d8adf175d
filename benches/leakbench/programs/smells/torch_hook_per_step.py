"""A forward hook is registered in each step and holds the batch of its step. The repaired program removes the hook."""

from loop import Loop
from torch_training import Trainer, batch

loop, trainer = Loop(__doc__), Trainer()
for step in loop:
    inputs, labels = batch()
    sizes = []
    hook = trainer.model[1].register_forward_hook(lambda *_, inputs=inputs: sizes.append(len(inputs)))
    loop.loss = trainer.step(inputs, labels)[1].item()
    if not loop.leaky:
        hook.remove()
