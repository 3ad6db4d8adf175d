"""Each step makes a summary writer for its inputs and does not close it. The repaired program closes it."""

from loop import Loop
from keras_training import Trainer, batch, tf

loop, trainer = Loop(__doc__), Trainer()
writers = []
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1]
    writer = tf.summary.create_file_writer(f"events/{step}")
    with writer.as_default():
        tf.summary.write("inputs", inputs, step)
    if loop.leaky:
        writers.append(writer)
    else:
        writer.close()
