"""A metric appends the predictions of each update to a list and is never reset. The repaired program resets it every ten steps."""

from loop import Loop
from keras_training import Trainer, batch, keras, tf


class Spread(keras.metrics.Metric):
    def __init__(self):
        super().__init__()
        self.predictions = []

    def update_state(self, labels, predictions, sample_weight=None):
        self.predictions.append(predictions)

    def result(self):
        return tf.math.reduce_std(tf.concat(self.predictions, 0))

    def reset_state(self):
        self.predictions.clear()


loop, trainer, metric = Loop(__doc__), Trainer(), Spread()
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1]
    metric.update_state(labels, trainer.model.layers[0](inputs))
    if not loop.leaky and step % 10 == 0:
        metric.result()
        metric.reset_state()
