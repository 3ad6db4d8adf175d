"""Each step makes a data set of a generator, and the registry of Python functions keeps the generators. The repaired program makes one
data set."""

from loop import Loop
from keras_training import BATCH, WIDTH, Trainer, batch, tf

loop, trainer = Loop(__doc__), Trainer()


def make_dataset():
    rows = batch()[0].numpy()
    return tf.data.Dataset.from_generator(lambda: iter([rows]), output_signature=tf.TensorSpec((BATCH, WIDTH)))


dataset = make_dataset()
for step in loop:
    if loop.leaky:
        dataset = make_dataset()
    inputs = next(iter(dataset))
    loop.loss = trainer.step(inputs, tf.argmax(inputs[:, :10], 1))[1]
