"""Writes answer_spans.json: answers in JSON, their tokens by GPT-2's vocabulary, and which letters each token covers.

Both by transformers' GPT2TokenizerFast with `return_offsets_mapping`. A token that is a part of a letter covers the letter.
pip install transformers
python tests/reference/answer_spans.py DIRECTORY     the directory of encoder.json and vocab.bpe
"""
import json
import pathlib
import random
import sys

import transformers

directory = pathlib.Path(sys.argv[1])
tokenizer = transformers.GPT2TokenizerFast(str(directory / "encoder.json"), str(directory / "vocab.bpe"))
chance = random.Random(7)
words = ["cross", "top left", "Paris, France", "12:30", "string", "日本", "é", "Żuraw", "😀", "a\"b", "c\\d", "\n", "", "{x}"]
keys = ["shape", "colour", "größe", "a b", "n", "type"]


def value(depth):
    kinds = [lambda: " ".join(chance.choices(words, k=chance.randint(1, 2))), lambda: chance.randint(-99, 9999),
             lambda: round(chance.uniform(-9, 9), 3), lambda: None, lambda: chance.random() < 0.5]
    if depth < 2:
        kinds += [lambda: {key: value(depth + 1) for key in chance.sample(keys, chance.randint(0, 2))},
                  lambda: [value(depth + 1) for _ in range(chance.randint(0, 2))]]
    return chance.choice(kinds)()


cases = []
for _ in range(200):
    answer = {key: value(0) for key in chance.sample(keys, chance.randint(1, 3))}
    text = json.dumps(answer, ensure_ascii=chance.random() < 0.3, indent=chance.choice([None, None, 1]))
    found = tokenizer(text, return_offsets_mapping=True)
    cases.append({"text": text, "tokens": found["input_ids"], "letters": [at for pair in found["offset_mapping"] for at in pair]})
target = pathlib.Path(__file__).with_suffix(".json")
target.write_text("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases) + "\n]\n")
