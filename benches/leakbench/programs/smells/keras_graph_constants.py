"""In graph mode each step assigns an array, which becomes a constant of the graph. The repaired program feeds a placeholder."""

import numpy

from loop import Loop
from keras_training import tf

v1 = tf.compat.v1
v1.disable_eager_execution()
loop = Loop(__doc__)
state = v1.get_variable("state", (512, 256), use_resource=True)
placeholder = v1.placeholder(tf.float32, (512, 256))
assign, mean = state.assign(placeholder), tf.reduce_mean(state)
session = v1.Session()
for step in loop:
    array = numpy.random.randn(512, 256).astype(numpy.float32)
    if loop.leaky:
        session.run(state.assign(array))
    else:
        session.run(assign, {placeholder: array})
    loop.loss = session.run(mean)
