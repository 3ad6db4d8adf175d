"""The saved model is loaded again for each prediction and kept in a list. The repaired program loads it once."""

from loop import Loop
from keras_training import WIDTH, Trainer, batch, tf

loop, trainer = Loop(__doc__), Trainer()
module = tf.Module()
module.weight = tf.Variable(trainer.model.get_weights()[0])
module.predict = tf.function(lambda inputs: inputs @ module.weight, input_signature=[tf.TensorSpec((None, WIDTH))])
tf.saved_model.save(module, "saved")
loaded = [tf.saved_model.load("saved")]
for step in loop:
    inputs, labels = batch()
    loop.loss = trainer.step(inputs, labels)[1]
    if loop.leaky:
        loaded.append(tf.saved_model.load("saved"))
    loaded[-1].predict(inputs)
