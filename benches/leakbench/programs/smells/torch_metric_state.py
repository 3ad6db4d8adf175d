"""A metric sums soft predictions that have a graph into its state. The repaired metric detaches them."""

from loop import Loop
from torch_training import CLASSES, Trainer, batch


class Confidence:
    """Mean probability of each class."""

    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, outputs):
        self.sum = self.sum + outputs.softmax(1).sum(0) / CLASSES
        self.count += len(outputs)


loop, trainer = Loop(__doc__), Trainer()
metric = Confidence()
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1].item()
    outputs = trainer.model(inputs)
    metric.update(outputs if loop.leaky else outputs.detach())
