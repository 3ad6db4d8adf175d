"""`Dataset.cache()` keeps a data set in memory that is larger than planned. The repaired data set is not cached."""

from loop import Loop
from keras_training import BATCH, WIDTH, Trainer, tf

loop, trainer = Loop(__doc__), Trainer()
data = tf.data.Dataset.range(100_000).map(lambda number: tf.random.stateless_normal((BATCH, WIDTH), (1, number)))
data = iter(data.cache() if loop.leaky else data)
for step in loop:
    inputs = next(data)
    loop.loss = trainer.step(inputs, tf.argmax(inputs[:, :10], 1))[1]
