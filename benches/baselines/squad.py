#!/usr/bin/env python3
"""Baseline of experiments/qat_squad.toml: bits a byte of a byte n-gram with Witten-Bell smoothing.

    benches/baselines/squad.py FILE [--runs RUN]

FILE is in the format of SQuAD v1.1. Held out are the last tenth of the articles, as in the experiment. A context is cut to the
length of the experiment's sequences, at its beginning.
"""

import argparse
import collections
import json
import math
import pathlib

import result

HELD_OUT = 0.1
ORDER = 6
# Characters of 96 tokens, of some 3.02 each with a vocabulary of 2,048.
SEQUENCE = 290


def texts(articles):
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield question["question"], paragraph["context"], question["answers"][0]["text"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--runs", nargs="*", default=[])
    options = parser.parse_args()
    articles = json.loads(options.file.read_text())["data"]
    held_out = max(1, round(HELD_OUT * len(articles)))
    counts = [collections.defaultdict(collections.Counter) for _ in range(ORDER)]
    seen = set()
    for question, context, answer in texts(articles[:-held_out]):
        # A context once, as repetitions teach nothing about other articles.
        whole = f"Question: {question}\nContext: {context}" if context not in seen else f"Question: {question}\nContext:"
        seen.add(context)
        for data in (whole.encode(), f"\nAnswer: {answer}".encode()):
            for at, byte in enumerate(data):
                for order in range(min(ORDER, at + 1)):
                    counts[order][data[at - order : at]][byte] += 1
    totals = [{key: (sum(next_.values()), len(next_)) for key, next_ in table.items()} for table in counts]

    def probability(history, byte):
        found = 1.0 / 256.0
        for order in range(min(ORDER, len(history) + 1)):
            key = history[len(history) - order :]
            if key in totals[order]:
                total, kinds = totals[order][key]
                found = (counts[order][key][byte] + kinds * found) / (total + kinds)
        return found

    bits, size = 0.0, 0
    for question, context, answer in texts(articles[-held_out:]):
        start, end = f"Question: {question}\nContext:", f"\nAnswer: {answer}"
        data = f"{start} {context}"[: max(len(start), SEQUENCE - len(end))].encode() + end.encode()
        bits -= sum(math.log2(probability(data[max(0, at - ORDER + 1) : at], byte)) for at, byte in enumerate(data))
        size += len(data)
    found = result.of_runs(options.runs, "bits_per_byte_full")
    baselines = {"byte 6-gram, Witten-Bell": round(bits / size, 2)}
    note = f"{size:,} bytes of {held_out} held-out articles"
    result.write("qat_squad", "bits a byte", round(found[-1], 2) if found else None, baselines, note)


main()
