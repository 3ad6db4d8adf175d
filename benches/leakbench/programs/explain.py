#!/usr/bin/env python3
"""Runs each program of `explained.toml` under `xrun watch --explain`, and compares the explanation with the right answer.

    python benches/leakbench/programs/explain.py target/release/xrun --half judged
    python benches/leakbench/programs/explain.py target/release/xrun --mode repaired --json rows.json

The programs run with the Python of this script; those whose packages are missing are skipped. Needs only the standard library.
"""

import argparse
import concurrent.futures
import datetime
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

import run as programs

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[2] / "examples/watch"
GOAL = 0.85
# Longer than for verdicts, as a window of twenty steps follows the suspicion.
STEPS = 300
ASKED, SECONDS_MAX = "asked for the cause", 15


def command(xrun, name, is_example, mode):
    if is_example:
        script, arguments = EXAMPLES / f"{name}.py", ["--steps", "900", "--pause", "0.02"] + (["--bounded"] if mode == "repaired" else [])
    else:
        script, arguments = HERE / "smells" / f"{name}.py", [f"--{mode}", "--steps", str(STEPS)]
    return [xrun, "watch", "--explain", "--name", "one", "--no-patch", "--every", "200ms", "--time-limit", "20m", "--steps", programs.PATTERN,
            "--", sys.executable, str(script), *arguments]


def delay(log):
    """Returns the seconds from the first question to the first explanation."""
    times = [(datetime.datetime.fromisoformat(line.split(" ")[0]), line) for line in log.splitlines() if re.match(r"\d{4}-", line)]
    asked = [time for time, line in times if ASKED in line]
    told = [time for time, line in times if " explanation: " in line]
    return (told[0] - asked[0]).total_seconds() if asked and told else None


def watch(xrun, framework, name, right, mode):
    """Runs one program, and returns a row of the result."""
    row = {"program": name, "framework": framework, "mode": mode, "verdict": "failed", "right": None, "message": None}
    with tempfile.TemporaryDirectory() as directory:
        words = command(xrun, name, framework == "examples", mode)
        with open(f"{directory}/errors", "w+") as errors:
            code = subprocess.call(words, cwd=directory, stdout=subprocess.DEVNULL, stderr=errors)
        result = pathlib.Path(directory, "results/one/latest")
        if code or not (result / "verdict.json").exists():
            return row | {"message": f"exit code {code}: {pathlib.Path(directory, 'errors').read_text()[-1000:]}"}
        row["verdict"] = json.loads((result / "verdict.json").read_text())["verdict"]
        log = (result / "log.txt").read_text()
        row |= {"asked": log.count(ASKED), "seconds": delay(log)}
        path = result / "explanation.json"
        if path.exists():
            found = json.loads(path.read_text())
            row |= {"message": found["message"], "cause": found["cause"], "certainty": found["certainty"], "cost": found["cost_seconds"]}
            row |= {"window": found["window_seconds"], "right": is_right(found, right)}
    return row


def is_right(found, right):
    text = (found["line"] or {}).get("text", "")
    holder = f"{found['holder'] or ''} {found['message']}" if found["cause"] in ("shared_memory", "objects") else found["holder"] or ""
    named = any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", holder) for name in right["holder"])
    return named or any(part in text for part in right["line"]) or bool(right.get("native")) and found["cause"] == "native"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("xrun", help="path of the program")
    parser.add_argument("--half", choices=["tuned", "judged"], help="only the programs with odd numbers, or those with even ones")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="only programs whose name contains TEXT (repeatable)")
    parser.add_argument("--mode", choices=["leaky", "repaired"], default="leaky")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="keep all rows in FILE, and run only what it lacks")
    arguments = parser.parse_args()
    xrun = str(pathlib.Path(arguments.xrun).resolve())
    answers = tomllib.loads((HERE / "explained.toml").read_text())
    needs = {smell["name"]: smell["needs"] for smell in tomllib.loads((HERE / "smells.toml").read_text())["smell"]}
    runs = []
    for framework, table in answers.items():
        for number, (name, right) in enumerate(table.items(), 1):
            half = "tuned" if number % 2 else "judged"
            missing = [package for package in needs.get(name, []) if not importlib.util.find_spec(package)]
            if missing:
                print(f"SKIPPED: {name}: Python lacks {', '.join(missing)}")
            elif arguments.half in (None, half) and (not arguments.only or any(text in name for text in arguments.only)):
                runs.append((framework, name, right))
    rows = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else []
    done = {(row["program"], row["mode"]) for row in rows}

    def one(framework, name, right):
        row = watch(xrun, framework, name, right, arguments.mode)
        rows.append(row)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
        print(f"{name}: {row['verdict']}, {row['right']}, {row.get('seconds')} s: {row['message']}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda run: one(*run), [run for run in runs if (run[1], arguments.mode) not in done]))
    rows = [row for row in rows if row["mode"] == arguments.mode and row["program"] in {name for _, name, _ in runs}]
    if arguments.mode == "repaired":
        accused = [row["program"] for row in rows if row["right"] is not None]
        print(f"explained: {programs.rate(len(accused), len(rows))} {' '.join(accused)}")
        sys.exit(1 if accused else 0)
    counted = [row for row in rows if row["verdict"] in programs.FOUND]
    right = [row for row in counted if row["right"]]
    print(f"right, of those found to grow: {programs.rate(len(right), len(counted))}")
    late = [row["program"] for row in counted if (row.get("seconds") or 0) > SECONDS_MAX]
    print(f"explained after more than {SECONDS_MAX} s: {late}")
    print(f"no explanation or a wrong one: {[row['program'] for row in counted if not row['right']]}")
    sys.exit(0 if len(right) >= GOAL * len(counted) else 1)


if __name__ == "__main__":
    main()
