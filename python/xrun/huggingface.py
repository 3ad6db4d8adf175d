"""Callback of Hugging Face's Trainer: ``Trainer(..., callbacks=[xrun.huggingface.Callback()])``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from ._watched import own, phase, step


class Callback(TrainerCallback):
    """Reports steps, losses and validations to ``xrun watch``, and the bytes of model, optimizer and log history."""

    def __init__(self) -> None:
        self._validation: phase | None = None
        self._train, self._save = phase("train"), phase("save")

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        own("log history", state.log_history)
        for name in ("model", "optimizer"):
            if kwargs.get(name) is not None:
                own(name, kwargs[name])

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._train.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._train.__exit__(None, None, None)
        step(state.global_step)
        # There is no event for the beginning of a checkpoint: it follows the last of these three.
        self._save.__enter__()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._save.__exit__(None, None, None)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if logs and "loss" in logs:
            step(state.global_step, **{name.replace("/", "_"): value for name, value in logs.items()})
        self._save.__enter__()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # There is no event for the beginning of a validation; this one follows its first batch.
        if self._validation is None:
            self._validation = phase("validation").__enter__()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end()
        self._save.__enter__()

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        self._end()

    def _end(self) -> None:
        if self._validation is not None:
            self._validation.__exit__(None, None, None)
            self._validation = None
