"""Callback of Lightning: ``Trainer(..., callbacks=[xrun.lightning.Callback()])``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from lightning.pytorch import callbacks
except ImportError:
    from pytorch_lightning import callbacks

from ._watched import is_watched, own, phase, step

if TYPE_CHECKING:
    from collections.abc import Mapping


class Callback(callbacks.Callback):
    """Reports steps, losses and validations to ``xrun watch``, and the bytes of model and optimizers."""

    def __init__(self) -> None:
        self._validation, self._train, self._save = phase("validation"), phase("train"), phase("save")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        own("model", pl_module)
        for number, optimizer in enumerate(trainer.optimizers):
            own(f"optimizer {number}" if number else "optimizer", optimizer)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        # There is no event for the end of a checkpoint.
        self._save.__exit__(None, None, None)
        self._train.__enter__()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self._save.__enter__()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._train.__exit__(None, None, None)
        if not is_watched():
            return
        values: dict[str, Any] = {}
        # A loss on a GPU is waited for, as often as Lightning itself does.
        if trainer.global_step % max(trainer.log_every_n_steps, 1) == 0:
            values = {"loss": _loss(outputs)}
        step(trainer.global_step, **values)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._validation.__enter__()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._validation.__exit__(None, None, None)


def _loss(outputs: Mapping[str, Any] | Any) -> Any:
    return outputs.get("loss") if isinstance(outputs, dict) else outputs
