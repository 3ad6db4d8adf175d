"""A copy of the model is kept after each validation. The repaired program keeps one copy and sets its weights."""

from loop import Loop
from keras_training import Trainer, batch, keras

loop, trainer = Loop(__doc__), Trainer()
copies = [keras.models.clone_model(trainer.model)]
for step in loop:
    loop.loss = trainer.step(*batch())[1]
    if loop.leaky:
        copies.append(keras.models.clone_model(trainer.model))
    copies[-1].set_weights(trainer.model.get_weights())
