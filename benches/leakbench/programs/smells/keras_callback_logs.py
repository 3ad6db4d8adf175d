"""A callback keeps the weights after each batch. The repaired callback keeps the newest."""

from loop import Loop
from keras_training import batch, keras, network

loop, model = Loop(__doc__), network()
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))


class Weights(keras.callbacks.Callback):
    history = []

    def on_train_batch_end(self, number, logs=None):
        if not loop.leaky:
            self.history.clear()
        self.history.append(self.model.get_weights())
        loop.loss = logs["loss"]
        next(steps)


def batches():
    while True:
        yield batch()


steps = iter(loop)
next(steps)
model.fit(batches(), steps_per_epoch=loop.steps + 1, callbacks=[Weights()], verbose=0)
