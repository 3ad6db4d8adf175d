"""Each step makes a model that returns the features of a layer, and calls its `predict`. The repaired program makes it once."""

from loop import Loop
from keras_training import Trainer, batch, keras

loop, trainer = Loop(__doc__), Trainer()


def make_extractor():
    return keras.Model(trainer.model.inputs, trainer.model.layers[0].output)


extractors = [make_extractor()]
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1]
    if loop.leaky:
        extractors.append(make_extractor())
    extractors[-1].predict(inputs, verbose=0)
