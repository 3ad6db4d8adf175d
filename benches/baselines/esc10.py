#!/usr/bin/env python3
"""Baselines of experiments/esc10.toml: classes of 30 sounds from statistics of their log-mel bands, fold by fold.

    benches/baselines/esc10.py DIRECTORY [--runs RUN...]

DIRECTORY is in the layout of ESC-50. The runs are of `-s dataset.sound-clips.validation_fold=N`, N from 1 to 5.
"""

import argparse
import csv
import pathlib
import wave

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import result

BANDS = 64
FOLDS = range(1, 6)


def filter_bank(rate, size):
    mel = lambda hertz: 1127.0 * np.log1p(hertz / 700.0)
    edges = np.linspace(mel(20.0), mel(8000.0), BANDS + 2)
    at = mel(np.fft.rfftfreq(size, 1.0 / rate))
    rising = (at[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - at[None]) / (edges[2:] - edges[1:-1])[:, None]
    return np.clip(np.minimum(rising, falling), 0.0, None)


def statistics(path):
    """Mean and deviation over time of each log-mel band, in frames of 25 ms every 10 ms."""
    with wave.open(str(path)) as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768.0
    length, hop = rate // 40, rate // 100
    frames = np.lib.stride_tricks.sliding_window_view(samples, length)[::hop] * np.hanning(length)
    power = np.abs(np.fft.rfft(frames, 2048)) ** 2
    bands = np.log(power @ filter_bank(rate, 2048).T + 1e-7)
    return np.concatenate([bands.mean(0), bands.std(0)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--runs", nargs="*", default=[])
    options = parser.parse_args()
    with open(options.directory / "meta.csv") as file:
        rows = list(csv.DictReader(file))
    x = np.stack([statistics(options.directory / "audio" / row["filename"]) for row in rows])
    y = np.array([int(row["target"]) for row in rows])
    fold = np.array([int(row["fold"]) for row in rows])
    right = {"nearest class mean": 0, "logistic regression": 0}
    for held_out in FOLDS:
        train, test = fold != held_out, fold == held_out
        classes = np.unique(y[train])
        means = np.stack([x[train & (y == one)].mean(0) for one in classes])
        distances = np.linalg.norm(x[test][:, None] - means[None], axis=2)
        right["nearest class mean"] += int((classes[distances.argmin(1)] == y[test]).sum())
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(x[train], y[train])
        right["logistic regression"] += int((model.predict(x[test]) == y[test]).sum())
    found = result.of_runs(options.runs, "retrieval")
    assert len(found) in (0, len(FOLDS)), "one run for each fold"
    # Each fold has as many clips.
    xrun = round(sum(found) / 100.0 * len(rows) / len(FOLDS)) if found else None
    result.write("esc10", "sounds of 30", xrun, right, "over five folds of six sounds")


main()
