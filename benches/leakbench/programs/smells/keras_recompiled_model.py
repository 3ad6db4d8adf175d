"""The model is compiled again every twelve steps to change the learning rate. The repaired program assigns the learning rate."""

from loop import Loop
from keras_training import batch, keras, network

loop, model = Loop(__doc__), network()
for step in loop:
    if step == 1 or loop.leaky and step % 12 == 0:
        optimizer = keras.optimizers.Adam(1e-3 / step)
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.optimizer.learning_rate = 1e-3 / step
    loop.loss = model.train_on_batch(*batch())
