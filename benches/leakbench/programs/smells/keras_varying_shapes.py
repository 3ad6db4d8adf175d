"""A `tf.function` is traced for each batch size. The repaired function has a signature with an unknown size."""

from loop import Loop
from keras_training import BATCH, WIDTH, Trainer, batch, tf

loop, trainer = Loop(__doc__), Trainer()


def augment(inputs):
    for _ in range(12):
        inputs = inputs + tf.sin(inputs) / 12
    return inputs


augment = tf.function(augment, input_signature=None if loop.leaky else [tf.TensorSpec((None, WIDTH))], reduce_retracing=False)
for step in loop:
    inputs, labels = batch()
    augment(inputs[:BATCH - step])
    loop.loss = trainer.step(inputs, labels)[1]
