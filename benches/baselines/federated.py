#!/usr/bin/env python3
"""Baselines of experiments/federated.toml: classes of generated sounds from statistics of their log-mel bands.

    cargo bench --bench clips > clips.jsonl
    benches/baselines/federated.py clips.jsonl [--runs RUN]
"""

import argparse
import json
import pathlib

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("clips", type=pathlib.Path)
    parser.add_argument("--runs", nargs="*", default=[])
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.clips.read_text().splitlines()]
    x, y = np.array([row["x"] for row in rows]), np.array([row["class"] for row in rows])
    test = np.array([row["is_held_out"] for row in rows])
    means = np.stack([x[~test & (y == one)].mean(0) for one in np.unique(y)])
    nearest = np.linalg.norm(x[test][:, None] - means[None], axis=2).argmin(1)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)).fit(x[~test], y[~test])
    percent = lambda predicted: round(100.0 * float((predicted == y[test]).mean()), 1)
    baselines = {"nearest class mean": percent(nearest), "logistic regression": percent(model.predict(x[test]))}
    found = result.of_runs(options.runs, "retrieval")
    note = f"{int(test.sum())} held-out sounds; the baselines have all nodes' sounds"
    result.write("federated", "sounds, %", round(found[-1], 1) if found else None, baselines, note)


main()
