"""Features of each validation batch are kept as tensors. The repaired program keeps their mean."""

from loop import Loop
from keras_training import Trainer, batch, tf

loop, trainer = Loop(__doc__), Trainer()
features = []
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1]
    output = trainer.model.layers[0](inputs)
    features.append(output if loop.leaky else float(tf.reduce_mean(output)))
