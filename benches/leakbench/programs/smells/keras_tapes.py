"""Persistent gradient tapes are kept with the activations that they recorded. The tapes of the repaired program are not persistent and
not kept."""

from loop import Loop
from keras_training import Trainer, batch, tf

loop, trainer = Loop(__doc__), Trainer()
tapes = []
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1]
    with tf.GradientTape(persistent=loop.leaky) as tape:
        loss = trainer.compute_loss(labels, trainer.model(inputs))
    tape.gradient(loss, trainer.model.trainable_variables)
    if loop.leaky:
        tapes.append(tape)
