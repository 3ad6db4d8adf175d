"""In graph mode each step adds the operations of its metric to the graph. The repaired program adds them once."""

import numpy

from loop import Loop
from keras_training import tf

v1 = tf.compat.v1
v1.disable_eager_execution()
loop = Loop(__doc__)
inputs = v1.placeholder(tf.float32, (512, 256))
session = v1.Session()


def make_metric():
    value = inputs
    for _ in range(12):
        value = value + tf.sin(value) / 12
    return tf.reduce_mean(value)


metric = make_metric()
for step in loop:
    if loop.leaky:
        metric = make_metric()
    loop.loss = session.run(metric, {inputs: numpy.random.randn(512, 256)})
