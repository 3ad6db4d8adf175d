"""Persistent gradient tapes are kept with the activations that they recorded. The tape of the repaired program is in a `tf.function`."""

from loop import Loop
from keras_training import Trainer, batch, tf

loop, trainer = Loop(__doc__), Trainer()
tapes = []


def compute_gradients(inputs, labels):
    with tf.GradientTape(persistent=loop.leaky) as tape:
        loss = trainer.compute_loss(labels, trainer.model(inputs))
    if loop.leaky:
        tapes.append(tape)
    return tape.gradient(loss, trainer.model.trainable_variables)


compute_gradients = compute_gradients if loop.leaky else tf.function(compute_gradients)
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1]
    compute_gradients(inputs, labels)
