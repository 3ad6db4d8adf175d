"""Models are built and compiled in a loop without `clear_session`. The repaired program builds one model and loads new weights."""

from loop import Loop
from keras_training import batch, keras, network

loop = Loop(__doc__)


def build():
    model = network()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


model = build()
weights = model.get_weights()
for step in loop:
    if loop.leaky:
        model = build()
    else:
        model.set_weights(weights)
    loop.loss = model.train_on_batch(*batch())
