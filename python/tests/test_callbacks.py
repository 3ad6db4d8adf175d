"""Callbacks of trainers, with the real packages, under `xrun watch`.

`XRUN_TRAINERS_PYTHON` names a Python that has them, in place of the one that runs the tests.
"""

import os
import subprocess
import sys

import pytest

PYTHON = os.environ.get("XRUN_TRAINERS_PYTHON", sys.executable)

HUGGING_FACE = """
import torch, xrun
from transformers import Trainer, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(500, 500)
    def forward(self, x, labels):
        predicted = self.layer(x)
        return {"loss": ((predicted - labels) ** 2).mean(), "logits": predicted}

data = [{"x": torch.randn(500), "labels": torch.zeros(500)} for _ in range(80)]
arguments = TrainingArguments("out", max_steps=20, per_device_train_batch_size=4, logging_steps=5, eval_strategy="steps", eval_steps=10,
    report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True)
Trainer(Model(), arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[xrun.huggingface.Callback()]).train()
"""

LIGHTNING = """
import torch, xrun
try:
    import lightning.pytorch as L
except ImportError:
    import pytorch_lightning as L

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(500, 500)
    def training_step(self, batch, index):
        return (self.layer(batch[0]) ** 2).mean()
    def validation_step(self, batch, index):
        pass
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 500)), batch_size=4)
L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, log_every_n_steps=5,
    num_sanity_val_steps=0, callbacks=[xrun.lightning.Callback()]).fit(Model(), data, data)
"""

KERAS = """
import numpy, keras, xrun
model = keras.Sequential([keras.layers.Dense(500)])
model.compile("adam", "mse")
x = numpy.ones((40, 500), "float32")
model.fit(x, x, batch_size=4, epochs=2, validation_data=(x, x), verbose=0, callbacks=[xrun.keras.Callback()])
"""


@pytest.mark.parametrize(
    ("package", "code", "losses"),
    [("transformers", HUGGING_FACE, 4), ("lightning", LIGHTNING, 4), ("keras", KERAS, 20)],
)
def test_a_trainer_reports_steps_losses_owners_and_validations(watch, package: str, code: str, losses: int) -> None:
    imports = {"transformers": "transformers, accelerate", "lightning": "lightning.pytorch", "keras": "keras; keras.backend.backend()"}
    if subprocess.run([PYTHON, "-c", f"import {imports[package]}"], capture_output=True).returncode:
        pytest.skip(f"{package} is not installed for {PYTHON}")
    run = watch(code, python=PYTHON)
    assert run.summary["steps"] == 20
    train = run.metrics.where(kind="train")
    assert len(train) == losses
    assert all(row["loss"] > 0 for row in train)
    phases = {phase["name"]: phase["count"] for phase in run.summary["phases"]}
    assert phases["validation"] == 2 and phases["train"] >= 1
    model = max(row.get("owners.model") or 0 for row in run.memory)
    assert model >= 1_000_000, "a layer of 500 by 500 weights"
