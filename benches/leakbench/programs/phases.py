#!/usr/bin/env python3
"""Twelve trainings that grow in one phase, and whether `xrun watch` names it; where lines do not enclose it, as "in it or beside it".

    python benches/leakbench/programs/phases.py target/release/xrun     # one line for each, and how many were right
    python benches/leakbench/programs/phases.py --run NAME              # the program itself

Needs torch and transformers, Lightning and Keras; a program whose package is missing is left out, and said to be.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Bytes that each time leaves behind; where lines are printed more than `malloc` has free, which is used up first and cannot be seen outside.
EACH, PRINTED = 4 << 20, 32 << 20
STEPS, EVERY = 240, 12
PROGRAMS = {}
kept = []


def planted(phase, package=None):
    def register(function):
        PROGRAMS[function.__name__] = (function, phase, package)
        return function

    return register


def leak(count=EACH):
    kept.append(b"x" * count)


def work(seconds=0.02):
    """A part of a training that allocates memory and frees it again."""
    scratch = bytearray(8 << 20)
    time.sleep(seconds)
    del scratch


@planted("save")
def reported_save():
    reported("save")


@planted("validation")
def reported_validation():
    reported("validation")


@planted("train")
def reported_train():
    reported("train")


def reported(grows_in):
    import xrun

    def run(name, seconds):
        with xrun.phase(name):
            work(seconds)
            if grows_in == name and name != "train":
                leak()

    for step in range(1, STEPS + 1):
        run("train", 0.02)
        if grows_in == "train" and step % 4 == 0:
            with xrun.phase("train"):
                leak()
        xrun.step(step, loss=1 / step)
        if step % EVERY == 0:
            run("validation", 0.05)
            run("save", 0.05)


def printed_steps():
    """Trains, prints each step, and yields the steps after which something else comes."""
    for step in range(1, STEPS + 1):
        work()
        print(f"step {step} loss {1 / step:.4f}", flush=True)
        if step % EVERY == 0:
            yield step


@planted("save")
def printed_save():
    for step in printed_steps():
        print(f"Saving model checkpoint to out/checkpoint-{step}", flush=True)
        work(0.05)
        leak(PRINTED)


@planted("save")
def printed_after_saving():
    for step in printed_steps():
        work(0.05)
        leak(PRINTED)
        print(f"Model weights saved in out/{step}.bin", flush=True)


@planted("validation")
def printed_results():
    for step in printed_steps():
        for _ in range(3):
            work()
        leak(PRINTED)
        print(f"validation loss {1 / step:.4f}, accuracy 0.5", flush=True)
        print("Saving model checkpoint", flush=True)
        work()


@planted("validation")
def printed_bars():
    for _ in printed_steps():
        for batch in range(1, 9):
            print(f"\rEvaluating: {batch * 100 // 8}%|{'#' * batch:8}| {batch}/8 [00:00<00:00, 40.0it/s]", end="", file=sys.stderr, flush=True)
            work(0.01)
            leak(PRINTED // 8)
        print(file=sys.stderr, flush=True)


@planted("save", "transformers")
def transformers_save():
    hugging_face("save")


@planted("validation", "transformers")
def transformers_validation():
    hugging_face("validation")


def hugging_face(grows_in):
    import torch
    import transformers
    import xrun.huggingface

    class Trainer(transformers.Trainer):
        def _save_checkpoint(self, *arguments, **named):
            super()._save_checkpoint(*arguments, **named)
            if grows_in == "save":
                leak()

        def prediction_step(self, *arguments, **named):
            if grows_in == "validation":
                leak(EACH // 4)
            return super().prediction_step(*arguments, **named)

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=256, n_positions=32, n_embd=32, n_layer=2, n_head=2))
    rows = [{"input_ids": (tokens := torch.randint(256, (32,))), "labels": tokens} for _ in range(32)]
    options = transformers.TrainingArguments(
        output_dir="out", max_steps=STEPS, per_device_train_batch_size=4, per_device_eval_batch_size=8, eval_strategy="steps", eval_steps=EVERY,
        save_steps=EVERY, save_total_limit=1, logging_steps=EVERY, report_to=[], use_cpu=True, disable_tqdm=True,
    )
    Trainer(model=model, args=options, train_dataset=rows, eval_dataset=rows, callbacks=[xrun.huggingface.Callback()]).train()


@planted("validation", "lightning")
def lightning_validation():
    lightning("validation")


@planted("save", "lightning")
def lightning_save():
    lightning("save")


def lightning(grows_in):
    import lightning.pytorch as pl
    import torch
    import xrun.lightning

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 64)

        def training_step(self, batch, number):
            time.sleep(0.01)
            return self.layer(batch[0]).square().mean()

        def validation_step(self, batch, number):
            time.sleep(0.01)
            if grows_in == "validation":
                leak(EACH // 4)

        def on_save_checkpoint(self, checkpoint):
            time.sleep(0.02)
            if grows_in == "save":
                leak()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    data = torch.utils.data.TensorDataset(torch.randn(4 * EVERY, 64))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    saved = pl.callbacks.ModelCheckpoint(dirpath="out", every_n_train_steps=EVERY, save_top_k=1)
    trainer = pl.Trainer(
        max_steps=STEPS, limit_val_batches=4, accelerator="cpu", logger=False, enable_progress_bar=False, num_sanity_val_steps=0,
        callbacks=[xrun.lightning.Callback(), saved],
    )
    trainer.fit(Model(), loader, loader)


@planted("validation", "keras")
def keras_validation():
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy
    import xrun.keras

    class Growing(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.02)

        def on_test_batch_end(self, batch, logs=None):
            leak(EACH // 4)

    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(32), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    inputs, outputs = numpy.random.randn(4 * EVERY, 32), numpy.random.randn(4 * EVERY, 1)
    callbacks = [xrun.keras.Callback(), Growing()]
    model.fit(inputs, outputs, batch_size=4, epochs=STEPS // EVERY, validation_data=(inputs[:16], outputs[:16]), validation_batch_size=4, callbacks=callbacks, verbose=0)


def judge(program, name, phase):
    paths = [str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    words = [program, "watch", "--name", "one", "--no-patch", "--every", "100ms", "--time-limit", "3m", "--", sys.executable, __file__, "--run", name]
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))}
        ended = subprocess.run(words, cwd=directory, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        file = pathlib.Path(directory, "results/one/latest/verdict.json")
        if not file.exists():
            return False, ended.stderr[-300:]
        message = json.loads(file.read_text())["message"]
        return f"it grows in *{phase}*" in message, message


def main():
    if sys.argv[1] == "--run":
        return PROGRAMS[sys.argv[2]][0]()
    program, only = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2:]
    chosen = {name: one for name, one in PROGRAMS.items() if not only or name in only}
    right = 0
    for name, (_, phase, package) in chosen.items():
        if package and importlib.util.find_spec(package) is None:
            print(f"{name}: left out, {package} is not installed", flush=True)
            continue
        is_right, message = judge(program, name, phase)
        right += is_right
        print(f"{name}: {'right' if is_right else 'not right'}: {message}", flush=True)
    print(f"{right} of {len(chosen)} right")


if __name__ == "__main__":
    main()
