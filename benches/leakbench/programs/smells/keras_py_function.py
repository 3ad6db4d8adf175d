"""`tf.py_function` wraps a new closure in each step, which remains with its batch. The repaired program calls NumPy itself."""

import numpy

from loop import Loop
from keras_training import Trainer, batch, tf

loop, trainer = Loop(__doc__), Trainer()
for step in loop:
    inputs, labels = batch()
    if loop.leaky:
        array = inputs.numpy()
        inputs = tf.py_function(lambda array=array: numpy.tanh(array), [], tf.float32)
    else:
        inputs = tf.constant(numpy.tanh(inputs.numpy()))
    loop.loss = trainer.step(tf.ensure_shape(inputs, (512, 256)), labels)[1]
