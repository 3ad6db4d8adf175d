"""Small Keras classifier on random data, which the programs train with TensorFlow."""

import os

os.environ |= {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}

import keras
import tensorflow as tf

# Two programs run at once on two cores.
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.get_logger().setLevel("ERROR")
keras.utils.set_random_seed(1)

BATCH, WIDTH, CLASSES = 512, 256, 10


def network():
    layers = [keras.layers.Dense(WIDTH, "relu"), keras.layers.Dense(WIDTH, "relu"), keras.layers.Dense(CLASSES)]
    return keras.Sequential([keras.Input((WIDTH,)), *layers])


def batch():
    """Returns inputs (512 KiB) and labels."""
    inputs = tf.random.normal((BATCH, WIDTH))
    return inputs, tf.argmax(inputs[:, :CLASSES], 1)


class Trainer:
    def __init__(self, model=None):
        self.model = model or network()
        self.optimizer = keras.optimizers.Adam(1e-3)
        self.optimizer.build(self.model.trainable_variables)
        self.compute_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(self, inputs, labels):
        """Updates the weights once, and returns the outputs and the loss."""
        with tf.GradientTape() as tape:
            outputs = self.model(inputs, training=True)
            loss = self.compute_loss(labels, outputs)
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        return outputs, loss
