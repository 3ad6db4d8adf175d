"""Writes squad_answers.json: answers, and what SQuAD's rules for version 1.1 say of them.

The rules are written here after their description: lower case, ASCII punctuation out, articles out, white space made
single; the best over the accepted answers. python tests/reference/squad_answers.py
"""
import collections
import json
import pathlib
import re
import string


def normalise(text):
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(said, accepted):
    said, accepted = normalise(said).split(), normalise(accepted).split()
    same = sum((collections.Counter(said) & collections.Counter(accepted)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(said), same / len(accepted)
    return 2 * precision * recall / (precision + recall)


pairs = [
    ("Denver Broncos", ["Denver Broncos", "the Broncos"]),
    ("the  Denver broncos!", ["Denver Broncos"]),
    ("Broncos", ["Denver Broncos", "Carolina Panthers"]),
    ("a an the", ["The"]),
    ("", ["x"]),
    ("", ["the"]),
    ("anthem of a theatre", ["an anthem of the theatre", "theatre"]),
    ("one one two", ["one two two"]),
    ("1,000.5", ["10005", "1 000"]),
    ("U.S.A.", ["usa"]),
    ("Żuraw and the Ör", ["ŻURAW AND ÖR"]),
    ("a-b the-c", ["b c", "ab thec"]),
    ("half of it", ["all of that", "half"]),
    ("\u2014dash\u2014", ["dash", "\u2014dash\u2014"]),
]
cases = []
for said, accepted in pairs:
    cases.append({
        "said": said,
        "accepted": accepted,
        "exact_match": 100.0 * max(normalise(said) == normalise(one) for one in accepted),
        "f1": 100.0 * max(f1(said, one) for one in accepted),
    })
result = {name: sum(case[name] for case in cases) / len(cases) for name in ("exact_match", "f1")}
place = pathlib.Path(__file__).with_suffix(".json")
place.write_text(json.dumps({"cases": cases, **result}, indent=1) + "\n")
