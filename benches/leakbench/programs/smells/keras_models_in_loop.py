"""A search builds and compiles a model for each trial without `clear_session`. The repaired program builds one and resets its weights."""

from loop import Loop
from keras_training import batch, keras, network

STEPS_PER_TRIAL = 6

loop = Loop(__doc__)


def build():
    model = network()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


model = build()
weights = model.get_weights()
for step in loop:
    if step % STEPS_PER_TRIAL == 0:
        if loop.leaky:
            model = build()
        else:
            model.set_weights(weights)
    loop.loss = model.train_on_batch(*batch())
