#!/usr/bin/env python3
"""Runs each program of `smells.toml` under `xrun watch`, leaky and repaired, and compares the verdicts with the truth.

    python benches/leakbench/programs/run.py target/release/xrun
    python benches/leakbench/programs/run.py target/release/xrun --only torch_ --json rows.json

The programs run with the Python of this script; those whose packages are missing are skipped. Two run at a time, each for some twenty
seconds. Needs only the standard library.
"""

import argparse
import collections
import concurrent.futures
import importlib.util
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
PATTERN = r"step (?<step>\d+) loss (?<loss>\S+)"
MIB = 1 << 20
STEPS = 180
# Verdicts that report growth.
FOUND = ("growing", "slowing", "retained")
# A program is measured here too, without xrun, at a fifth and at four fifths of its steps and shortly before the end.
EARLY, LATE, END = STEPS // 5, STEPS * 4 // 5, STEPS - 5
# A leaky program grows at a rate of 64 MiB in all of its steps, and at a quarter of that rate at the end; a repaired one grows by less
# than xrun regards as growth.
LEAK, LATE_LEAK, BOUNDED = 64 * MIB * (STEPS - EARLY) // STEPS, 16 * MIB * (STEPS - LATE) // STEPS, 16 * MIB
GOAL = 0.9


def descendants(parent):
    """Yields the processes that descend from `parent`."""
    try:
        for task in os.listdir(f"/proc/{parent}/task"):
            for child in pathlib.Path(f"/proc/{parent}/task/{task}/children").read_text().split():
                yield int(child)
                yield from descendants(int(child))
    except OSError:
        return


def memory(watcher, shared_files):
    """Returns the proportional set size (PSS) of the processes below `watcher`, with the files in /dev/shm if `shared_files`."""
    total = 0
    for process in descendants(watcher):
        try:
            lines = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines[1:]}
        # File pages are no growth: the kernel can drop them.
        total += sizes.get("Pss_Anon", 0) + sizes.get("Pss_Shmem", 0)
    if shared_files:
        total += sum(entry.stat().st_blocks * 512 for entry in os.scandir("/dev/shm") if entry.is_file())
    return total


def watch(xrun, smell, mode, keep):
    """Runs one program under xrun, and returns a row of the result."""
    row = {"smell": smell["name"], "framework": smell["framework"], "mode": mode, "verdict": "failed", "message": "", "slope": None}
    row |= {"grew": 0, "grew_late": 0}
    with tempfile.TemporaryDirectory() as directory, open(f"{directory}/errors", "w+") as errors:
        script = HERE / "smells" / f"{smell['name']}.py"
        command = [xrun, "watch", "--name", "one", "--no-patch", "--every", "200ms", "--time-limit", "20m", "--steps", PATTERN, "--",
                   sys.executable, str(script), f"--{mode}", "--steps", str(STEPS)]
        process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace")
        sizes, steps = {}, 0
        for line in process.stdout:
            if match := re.search(r"step (\d+) loss", line):
                steps = int(match[1])
                if steps in (EARLY, LATE, END):
                    sizes[steps] = memory(process.pid, smell.get("alone"))
        code = process.wait()
        errors.seek(0)
        result = pathlib.Path(directory, "results/one/latest")
        if code or steps < STEPS or not (result / "verdict.json").exists():
            row["message"] = f"exit code {code} after step {steps}: {errors.read()[-2000:]}"
        else:
            verdict = json.loads((result / "verdict.json").read_text())
            held = next((series for series in verdict["series"] if series["name"] == "held"), {})
            row |= {"verdict": verdict["verdict"], "message": verdict["message"], "slope": held.get("slope")}
            row |= {"grew": sizes[END] - sizes[EARLY], "grew_late": sizes[END] - sizes[LATE]}
        if keep:
            shutil.copytree(result.resolve(), keep / f"{smell['name']}.{mode}", dirs_exist_ok=True)
    return row


def truth(row):
    """Returns whether the program did what its mode promises."""
    if row["verdict"] == "failed":
        return False
    return row["grew"] >= LEAK and row["grew_late"] >= LATE_LEAK if row["mode"] == "leaky" else row["grew"] < BOUNDED


def right(row):
    return (row["verdict"] in FOUND) == (row["mode"] == "leaky")


def interval(count, total):
    """Returns the two-sided 95 % interval of Clopper and Pearson for `count` of `total`."""

    def at_most(successes, probability):
        return sum(math.comb(total, k) * probability**k * (1 - probability)**(total - k) for k in range(successes + 1))

    def solve(is_below):
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if is_below(middle) else (low, middle)
        return low

    lower = 0.0 if count == 0 else solve(lambda probability: 1 - at_most(count - 1, probability) < 0.025)
    upper = 1.0 if count == total else solve(lambda probability: at_most(count, probability) > 0.025)
    return lower, upper


def rate(count, total):
    if not total:
        return "none of 0"
    low, high = interval(count, total)
    return f"{count} of {total} ({100 * count / total:.0f} %; {100 * low:.0f} to {100 * high:.0f} %)"


def table(rows):
    """Formats the rows and rates as Markdown."""
    pairs = collections.defaultdict(dict)
    for row in rows:
        pairs[row["smell"]][row["mode"]] = row
    lines = ["| smell | leaky: growth | verdict | rate of xrun | repaired: growth | verdict | right |", "|---|---:|---|---:|---:|---|---|"]
    for name, pair in pairs.items():
        cells = [f"`{name}`"]
        for mode in ("leaky", "repaired"):
            row = pair[mode]
            cells += [f"{round(row['grew'] / MIB)} MiB", row["verdict"]]
            if mode == "leaky":
                cells.append("–" if row["slope"] is None or row["verdict"] not in FOUND else f"{row['slope'] / 1024:.0f} KiB a step")
        unfit = [mode for mode in ("leaky", "repaired") if not truth(pair[mode])]
        wrong = [mode for mode in ("leaky", "repaired") if mode not in unfit and not right(pair[mode])]
        parts = [f"**{' and '.join(wrong)} wrong**"] if wrong else []
        parts += [f"not counted: {' and '.join(unfit)}"] if unfit else []
        lines.append(f"| {' | '.join(cells)} | {'; '.join(parts) or 'yes'} |")
    return lines


def summary(rows):
    """Returns lines with the rates, and whether the goal is reached."""
    counted = [row for row in rows if truth(row)]
    lines, reached = [], True
    for title, frameworks in [("all", ("PyTorch", "Python", "TensorFlow")), *((name, (name,)) for name in ("PyTorch", "Python", "TensorFlow"))]:
        leaky = [right(row) for row in counted if row["mode"] == "leaky" and row["framework"] in frameworks]
        repaired = [not right(row) for row in counted if row["mode"] == "repaired" and row["framework"] in frameworks]
        lines.append(f"| {title} | {rate(sum(leaky), len(leaky))} | {rate(sum(repaired), len(repaired))} |")
        if title == "all":
            reached = sum(leaky) >= GOAL * len(leaky) and not any(repaired)
    return ["| programs | leaky, found | repaired, accused |", "|---|---|---|", *lines], reached


def write_between_markers(path, lines):
    text = path.read_text()
    start, end = "<!-- programs: begin -->\n", "<!-- programs: end -->\n"
    head, rest = text.split(start)
    path.write_text(head + start + "\n" + "\n".join(lines) + "\n\n" + end + rest.split(end)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("xrun", help="path of the program")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="only smells whose name contains TEXT (repeatable)")
    parser.add_argument("--mode", choices=["leaky", "repaired"], action="append", help="only this mode")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="keep all rows in FILE, and run only what it lacks")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="copy the results of all runs to DIR")
    parser.add_argument("--write", type=pathlib.Path, metavar="PAGE", help="write the tables between the markers of a page in Markdown")
    arguments = parser.parse_args()
    xrun = str(pathlib.Path(arguments.xrun).resolve())
    smells = tomllib.loads((HERE / "smells.toml").read_text())["smell"]
    smells = [smell for smell in smells if not arguments.only or any(text in smell["name"] for text in arguments.only)]
    missing = {package: not importlib.util.find_spec(package) for smell in smells for package in smell["needs"]}
    skipped = [smell for smell in smells if any(missing[package] for package in smell["needs"])]
    smells = [smell for smell in smells if smell not in skipped]
    if skipped:
        print(f"SKIPPED: {len(skipped)} smells, as Python lacks {', '.join(name for name in missing if missing[name])}", flush=True)
    runs = [(smell, mode) for smell in smells for mode in arguments.mode or ("leaky", "repaired")]
    rows = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else []
    done = {(row["smell"], row["mode"]) for row in rows}
    runs = [(smell, mode) for smell, mode in runs if (smell["name"], mode) not in done]

    def run(smell, mode):
        row = watch(xrun, smell, mode, arguments.keep)
        rows.append(row)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
        mark = "" if right(row) else "  WRONG"
        mark = mark if truth(row) else "  not counted"
        print(f"{row['smell']} --{mode}: {row['verdict']}, grew {row['grew'] / MIB:.0f} MiB{mark}", flush=True)
        if mark:
            print(f"    {row['message']}", flush=True)

    for jobs, alone in ((arguments.jobs, False), (1, True)):
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda pair: run(*pair), [pair for pair in runs if pair[0].get("alone", False) == alone]))
    if arguments.mode or not rows:
        return
    order = {smell["name"]: number for number, smell in enumerate(smells)}
    rows = sorted((row for row in rows if row["smell"] in order), key=lambda row: (order[row["smell"]], row["mode"]))
    rates, reached = summary(rows)
    lines = [*rates, "", *table(rows)]
    print("\n".join(lines))
    if arguments.write:
        write_between_markers(arguments.write, lines)
    sys.exit(0 if reached else "the goal is not reached: 90 % of the leaky programs found, no repaired one accused")


if __name__ == "__main__":
    main()
