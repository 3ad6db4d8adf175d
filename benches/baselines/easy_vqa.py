#!/usr/bin/env python3
"""Baselines of experiments/vision_easy_vqa.toml: answers by the question alone, and by its words with colour and shape.

    benches/baselines/easy_vqa.py DIRECTORY [--runs RUN]

DIRECTORY has `questions.json` and `images`. Held out are the questions of the last fifth of the images, as in the experiment.
"""

import argparse
import collections
import json
import pathlib

import numpy as np
from PIL import Image
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

import result

COLOURS, SHAPES = 8, 3
HELD_OUT = 0.2


def colour_and_fill(path):
    """Median colour of what is not background, and the fraction of its bounding box that it fills."""
    pixels = np.asarray(Image.open(path).convert("RGB"), float)
    mask = np.abs(pixels - pixels[0, 0]).sum(2) > 60.0
    rows, columns = np.nonzero(mask)
    box = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
    return np.median(pixels[mask], axis=0), mask.sum() / box


def one_hot(labels, count):
    return np.eye(count)[labels]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--runs", nargs="*", default=[])
    options = parser.parse_args()
    rows = json.loads((options.directory / "questions.json").read_text())
    # In the order of their first questions.
    images = list(dict.fromkeys(image for _, _, image in rows))
    held_out = set(images[len(images) - round(HELD_OUT * len(images)) :])
    train = np.array([image not in held_out for _, _, image in rows])
    answers = np.array([answer for _, answer, _ in rows])
    score = lambda predicted: round(100.0 * float((predicted == answers[~train]).mean()), 1)

    most = lambda counts: counts.most_common(1)[0][0]
    majority = most(collections.Counter(answers[train]))
    by_text = collections.defaultdict(collections.Counter)
    for (text, answer, _), is_train in zip(rows, train):
        by_text[text][answer] += int(is_train)
    text_only = np.array([most(by_text[text]) for (text, _, _), is_train in zip(rows, train) if not is_train])

    seen = [colour_and_fill(options.directory / "images" / f"{image}.png") for image in images]
    colours, fills = np.stack([colour for colour, _ in seen]), np.array([[fill] for _, fill in seen])
    is_train = np.array([image not in held_out for image in images])
    cluster = lambda values, count: KMeans(count, n_init=10, random_state=0).fit(values[is_train]).predict(values)
    kinds = np.hstack([one_hot(cluster(colours, COLOURS), COLOURS), one_hot(cluster(fills, SHAPES), SHAPES)])
    words = CountVectorizer(binary=True, token_pattern=r"\w+").fit_transform(text for text, _, _ in rows).toarray()
    place = {image: at for at, image in enumerate(images)}
    of_image = kinds[[place[image] for _, _, image in rows]]
    x = np.hstack([words, of_image, (words[:, :, None] * of_image[:, None]).reshape(len(rows), -1)])
    model = LogisticRegression(max_iter=2000).fit(x[train], answers[train])

    found = result.of_runs(options.runs, "field_accuracy")
    baselines = {
        f"always {majority}": score(np.full((~train).sum(), majority)),
        "question alone": score(text_only),
        "logistic regression": score(model.predict(x[~train])),
    }
    note = f"{int((~train).sum())} questions; the regression is on words x (colour cluster, fill)"
    result.write("vision_easy_vqa", "answers, %", round(found[-1], 1) if found else None, baselines, note)


main()
