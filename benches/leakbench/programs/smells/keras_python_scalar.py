"""A `tf.function` takes the step as a Python number, so each step is a new trace. The repaired program passes a tensor."""

from loop import Loop
from keras_training import Trainer, batch, tf

loop, trainer = Loop(__doc__), Trainer()


@tf.function
def augment(inputs, step):
    for layer in range(12):
        inputs = inputs + tf.sin(inputs) / tf.cast(step + layer, tf.float32)
    return inputs


for step in loop:
    inputs, labels = batch()
    inputs = augment(inputs, step if loop.leaky else tf.constant(step))
    loop.loss = trainer.step(inputs, labels)[1]
