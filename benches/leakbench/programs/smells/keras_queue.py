"""Two batches are added for each that is taken from a queue of TensorFlow without a useful bound. That of the repaired program holds
four."""

from loop import Loop
from keras_training import BATCH, WIDTH, Trainer, batch, tf

loop, trainer = Loop(__doc__), Trainer()
capacity = 100_000 if loop.leaky else 4
queue = tf.queue.FIFOQueue(capacity, [tf.float32], [(BATCH, WIDTH)])
for step in loop:
    while queue.size() < min(capacity, step + 1):
        queue.enqueue([batch()[0]])
    inputs = queue.dequeue()
    loop.loss = trainer.step(inputs, tf.argmax(inputs[:, :10], 1))[1]
