"""A layer appends its inputs to a list in eager mode. The repaired layer keeps the newest."""

from loop import Loop
from keras_training import Trainer, batch, keras


class Watched(keras.layers.Dense):
    def call(self, inputs):
        if not loop.leaky:
            seen.clear()
        seen.append(inputs)
        return super().call(inputs)


loop, trainer, seen = Loop(__doc__), Trainer(), []
layer = Watched(16)
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1]
    layer(inputs)
