#!/usr/bin/env python3
"""Compares estimated durations of experiments with actual ones: that of `xrun plan`, and that of the run after a tenth of its time.

    benches/durations.py [--program PROGRAM] [--limit SECONDS] [EXPERIMENT ...]

Without names, all experiments that need neither a GPU nor data that is missing and that take, by their plan, less than the limit (240 s).
Prints a row for each, with the load of the machine (processes that run or wait, a mean over the run); exits with 1 if an estimate after a
tenth of a run is off by more than 20 %.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
OFF_MAX = 0.2
# Interval of the samples of the load, in seconds.
LOAD_EVERY = 1.0
# The largest run, as a multiple of the limit.
OVERRUN = 2.5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(ROOT / "target/release/xrun"))
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument("experiments", nargs="*")
    options = parser.parse_args()
    files = [path for path in sorted((ROOT / "experiments").glob("*.toml")) if not options.experiments or path.stem in options.experiments]
    print("| experiment | load | took | plan (interval) | off | after a tenth | off | validations |\n|---|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    rows = [compare(options, file) for file in files if is_possible(file)]
    sys.exit(1 if any(off is None or abs(off) > OFF_MAX for off in rows) else 0)


def is_possible(file):
    text = file.read_text()
    return not (file.stem.endswith("_gpu") or "pipeline.command" in text or ("XRUN_REAL_DATA" in text and not os.environ.get("XRUN_REAL_DATA")))


def compare(options, file):
    """Prints a row; returns the relative error of the estimate after a tenth of the run, 0 for a run that is left out."""
    planned = subprocess.run([options.program, "plan", str(file), "--json"], capture_output=True, text=True, check=False)
    plan = json.loads(planned.stdout or "{}").get("duration")
    if not plan:
        print(f"{file.stem}: no plan: {planned.stderr.strip()[-300:]}", file=sys.stderr, flush=True)
        return 0.0
    if plan["seconds"] > options.limit:
        print(f"{file.stem}: left out, about {plan['seconds']:.0f} s", file=sys.stderr, flush=True)
        return 0.0
    with tempfile.TemporaryDirectory() as results:
        command = [options.program, "run", str(file), "--results", results, "--progress", "json"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        stop = threading.Timer(OVERRUN * options.limit, process.terminate)
        stop.start()
        load = Load()
        events = [event for event in map(json.loads, process.stderr) if "seconds_left" in event or event["event"] == "ended"]
        process.wait()
        stop.cancel()
        mean_load = load.stop()
    ended = events.pop() if events else {}
    actual = ended.get("seconds")
    if process.returncode not in (0, 6) or not actual:
        print(f"{file.stem}: exit code {process.returncode}: {ended.get('message')}", file=sys.stderr, flush=True)
        return None
    # Nothing was known before the first estimate: the plan is used.
    known = [one for one in events if one["seconds"] >= 0.1 * actual and one["seconds_left"] is not None]
    total = known[0]["seconds"] + known[0]["seconds_left"] if known else plan["seconds"]
    off, off_of_plan = total / actual - 1, plan["seconds"] / actual - 1
    interval = f"{plan['seconds']:.1f} s ({plan['low']:.1f} to {plan['high']:.1f})"
    share = plan["validations"] / max(plan["seconds"], 1e-9)
    cells = [file.stem, f"{mean_load:.1f}", f"{actual:.1f} s", interval, f"{off_of_plan:+.0%}", f"{total:.1f} s", f"{off:+.0%}", f"{share:.0%}"]
    print(f"| {' | '.join(cells)} |".replace("%", " %"), flush=True)
    return off


class Load:
    """Mean number of processes that run or wait for a processor, this run included."""

    def __init__(self):
        self.sum, self.count, self.ended = 0, 0, threading.Event()
        self.thread = threading.Thread(target=self.follow)
        self.thread.start()

    def follow(self):
        while True:
            running = pathlib.Path("/proc/loadavg").read_text().split()[3].split("/")[0]
            # This thread is one of them.
            self.sum, self.count = self.sum + int(running) - 1, self.count + 1
            if self.ended.wait(LOAD_EVERY):
                return

    def stop(self):
        self.ended.set()
        self.thread.join()
        return self.sum / self.count


if __name__ == "__main__":
    main()
