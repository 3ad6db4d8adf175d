"""Callback of Keras: ``model.fit(..., callbacks=[xrun.keras.Callback()])``."""

from __future__ import annotations

from typing import Any

import keras

from ._watched import is_watched, own, phase, step


class Callback(keras.callbacks.Callback):
    """Reports steps, losses and validations to ``xrun watch``, and the bytes of the model."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0
        self._validation, self._train = phase("validation"), phase("train")

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        own("model", self.model)

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._train.__enter__()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._train.__exit__(None, None, None)
        self._steps += 1
        if is_watched():
            step(self._steps, **(logs or {}))

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._validation.__enter__()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        self._validation.__exit__(None, None, None)
