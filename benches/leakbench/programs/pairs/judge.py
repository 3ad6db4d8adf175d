#!/usr/bin/env python3
"""Runs pairs under `xrun watch`, with and without `--explain`, one program at a time, and compares the words and the answers.

    python benches/leakbench/programs/pairs/judge.py target/debug/xrun tuned
    python benches/leakbench/programs/pairs/judge.py target/debug/xrun judged --json rows.json
"""

import argparse
import importlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))
import explain as programs  # noqa: E402


def watch(xrun, half, name, right, leaky, explained):
    row = {"program": name, "leaky": leaky, "explained": explained}
    options = ["--explain"] if explained else []
    words = [xrun, "watch", *options, "--name", "one", "--no-patch", "--every", "100ms", "--time-limit", "5m", "--",
             sys.executable, str(HERE / f"{half}.py"), name, *(["--leaky"] if leaky else [])]
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.run(words, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        result = pathlib.Path(directory, "results/one/latest")
        if not (result / "verdict.json").exists():
            return row | {"verdict": "failed", "message": process.stderr[-500:]}
        verdict = json.loads((result / "verdict.json").read_text())
        row |= {"verdict": verdict["verdict"], "about": verdict["message"]}
        log = (result / "log.txt").read_text()
        row |= {"asked": log.count(programs.ASKED), "seconds": programs.delay(log), "log": [line for line in log.splitlines() if "expla" in line]}
        path = result / "explanation.json"
        if path.exists():
            found = json.loads(path.read_text())
            row |= {key: found[key] for key in ("message", "cause", "certainty", "cost_seconds", "notes", "growth")}
            row["holders"] = [{key: one[key] for key in ("kind", "path", "before", "after", "bytes")} for one in found["holders"]]
            row["answer"] = judge(found, right)
        elif explained and leaky:
            row["answer"] = "none"
    return row


def judge(found, right):
    if programs.is_right(found, right) or right.get("threads") and found["cause"] == "threads":
        return "right"
    # To say that nothing is known, or nothing that Python sees, accuses nobody.
    return "reason" if found["cause"] in ("native", "unknown") else "wrong"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("xrun")
    parser.add_argument("half", choices=["tuned", "judged"])
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--mode", choices=["leaky", "sound"], action="append")
    parser.add_argument("--plain", action="store_true", help="also without --explain, interleaved")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    importlib.import_module(arguments.half)
    pairs = importlib.import_module("pair").PAIRS
    rows = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else []
    done = {(row["program"], row["leaky"], row["explained"]) for row in rows}
    for name, (_, right) in pairs.items():
        if arguments.only and not any(part in name for part in arguments.only):
            continue
        for leaky in (True, False):
            if arguments.mode and ("leaky" if leaky else "sound") not in arguments.mode:
                continue
            for explained in (True, False) if arguments.plain else (True,):
                if (name, leaky, explained) in done:
                    continue
                row = watch(str(pathlib.Path(arguments.xrun).resolve()), arguments.half, name, right, leaky, explained)
                rows.append(row)
                if arguments.json:
                    arguments.json.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
                cost = row.get("cost_seconds")
                print(f"{name} {'leaky' if leaky else 'sound'} {'explained' if explained else 'plain'}: {row['verdict']} | "
                      f"{row.get('answer', '')} {row.get('seconds')} s, cost {cost and round(cost, 2)} | {row.get('message') or ''}", flush=True)
    explained = [row for row in rows if row["explained"] and row["leaky"]]
    answers = [row.get("answer") for row in explained]
    print({answer: answers.count(answer) for answer in set(answers)})
    high = [row["answer"] for row in explained if row.get("certainty") == "high"]
    costs = sorted(row["cost_seconds"] for row in explained if "cost_seconds" in row)
    print(f"almost certainly: {high.count('right')} of {len(high)} right; processor time of the censuses of a window: median "
          f"{costs[len(costs) // 2]:.2f} s, largest {costs[-1]:.2f} s")
    plain = {(row["program"], row["leaky"]): row["verdict"] for row in rows if not row["explained"]}
    both = [(row, plain[key]) for row in rows if row["explained"] and (key := (row["program"], row["leaky"])) in plain]
    print(f"words: {sum(row['verdict'] == word for row, word in both)} of {len(both)} the same")


if __name__ == "__main__":
    main()
