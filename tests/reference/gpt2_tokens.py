"""Writes gpt2_tokens.json: texts, and their tokens by GPT-2's encoder.json and vocab.bpe.

Merging is written here after Radford et al. 2019: split by their pattern, then merge the pair of lowest rank as long as
there is one. Compared with transformers. pip install regex transformers
python tests/reference/gpt2_tokens.py DIRECTORY
"""
import json
import pathlib
import sys

import regex
import transformers

directory = pathlib.Path(sys.argv[1])
encoder = json.loads((directory / "encoder.json").read_text())
lines = (directory / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
ranks = {tuple(line.split()): rank for rank, line in enumerate(lines)}
plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
letters = {byte: chr(byte) for byte in plain}
for byte in range(256):
    if byte not in letters:
        letters[byte] = chr(256 + len(letters) - len(plain))
pattern = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def tokens(text):
    found = []
    for word in pattern.findall(text):
        parts = [letters[byte] for byte in word.encode()]
        while len(parts) > 1:
            pairs = [(ranks.get(pair, len(ranks)), at) for at, pair in enumerate(zip(parts, parts[1:]))]
            rank, at = min(pairs)
            if rank == len(ranks):
                break
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        found += [encoder[part] for part in parts]
    return found


texts = [
    "Hello world",
    "Question: Which NFL team represented the AFC at Super Bowl 50?\nContext: It's 1,000 o'clock; we'll see.",
    "  two spaces,  and\ttabs\n\n\nlines   ",
    "Żuraw 鶴 🦢 naïve façade \u2014 \u00a0",
    "antidisestablishmentarianism DON'T 12345678901234567890",
    " leading and trailing ",
]
other = transformers.GPT2Tokenizer(str(directory / "encoder.json"), str(directory / "vocab.bpe"))
cases = []
for text in texts:
    assert tokens(text) == other.encode(text), text
    cases.append({"text": text, "tokens": tokens(text)})
place = pathlib.Path(__file__).with_suffix(".json")
place.write_text(json.dumps(cases) + "\n")
