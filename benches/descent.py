#!/usr/bin/env python3
"""Runs in a memory cgroup whose limit is lowered while they work, with the ladder `limits.on_pressure`.

    python benches/descent.py PROGRAM systems    # the four systems: lowered five times; the bits, and the time of the same settings
    python benches/descent.py PROGRAM random 30  # random sizes, ladders and limits: each ends, or parks and is resumed
    python benches/descent.py PROGRAM calm 100   # undisturbed runs: no rung
    python benches/descent.py PROGRAM leaks 10   # leaks: each parks

Needs the right to make a memory cgroup (version 1, or version 2 of Linux 6.12, whose peak can be reset). Writes benches/descent.json, one entry for each kind.

A limit is lowered to 2 to 5 % above what the run held at its peak since the last time, and what two steps add to a cache: a limit below
what the step that is being done still needs is a kill by the kernel, whatever a program does.
"""
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20
RUNGS = ["caches", "prefetch", "workers", "micro_batch", "park"]
SAME_BITS = {"caches", "prefetch", "workers", "park"}


class Cgroup:
    def __init__(self):
        for root, limit, peak in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.peak"),
        ]:
            self.directory = pathlib.Path(root) / f"xrun-descent-{os.getpid()}"
            try:
                self.directory.mkdir()
            except OSError:
                continue
            self.limit, self.peak = self.directory / limit, self.directory / peak
            if self.limit.exists():
                return
            self.directory.rmdir()
        sys.exit("no memory cgroup can be made here")

    def reset_peak(self):
        self.peak.write_text("0")

    def peak_held(self):
        """Largest number of bytes since the reset, less those that the kernel can take back."""
        stat = dict(line.split() for line in (self.directory / "memory.stat").read_text().splitlines())
        return int(self.peak.read_text()) - int(stat["active_file"]) - int(stat["inactive_file"])

    def close(self):
        for _ in range(100):
            try:
                return self.directory.rmdir()
            except OSError:
                time.sleep(0.02)


def sets(settings):
    return [word for key, value in settings.items() for word in ("-s", f"{key}={json.dumps(value)}")]


def newest(results):
    runs = sorted(results.glob("*/2*/"))
    return runs[-1] if runs else None


def steps_done(results):
    try:
        return newest(results).joinpath("metrics.jsonl").read_text().count('"kind":"train"')
    except (AttributeError, OSError):
        return 0


def run(program, file, results, settings, lowerings=(), begin=0, every=0, spare=0):
    """Runs an experiment, lowered after `begin` steps and each `every` more to these multiples of its peak and `spare` bytes."""
    results.mkdir(parents=True, exist_ok=True)
    command = [program, str(file), "--results", str(results), "--progress=none", *sets(settings)]
    group = Cgroup() if lowerings else None
    lowered = []
    with open(results / "stderr", "w") as stderr:
        if group is None:
            code = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=stderr).returncode
        else:
            enter = ["sh", "-c", f'echo $$ > {group.directory}/cgroup.procs; exec "$@"', "sh"]
            child = subprocess.Popen(enter + command, stdout=subprocess.DEVNULL, stderr=stderr)
            for number, multiple in enumerate(lowerings):
                since = done = steps_done(results)
                at = max(begin + number * every, since + every)
                # Without the first quarter, in which rungs show their effect. Lines are written some at a time: those of the
                # second growth of the file are of steps since the reset.
                for until in (since + (at - since) // 4, at):
                    group.reset_peak()
                    growths = 0
                    while child.poll() is None and (done < until or growths < 2):
                        time.sleep(0.02)
                        before, done = done, steps_done(results)
                        growths += done > before
                if child.poll() is None:
                    peak = group.peak_held()
                    limit = int(peak * multiple) + spare
                    try:
                        group.limit.write_text(str(limit))
                        lowered.append({"step": done, "peak": peak, "limit": limit})
                    except OSError as error:
                        lowered.append({"step": done, "peak": peak, "limit": limit, "refused": error.strerror})
            code = child.wait()
            group.close()
    directory = newest(results)
    try:
        summary = json.loads((directory / "summary.json").read_text())
    except (OSError, AttributeError):
        summary = {}
    return {
        "code": code,
        "run": directory,
        "lowered": lowered,
        "seconds": summary.get("seconds"),
        "steps_per_second": summary.get("steps_per_second"),
        "steps": summary.get("steps"),
        "rungs": summary.get("rungs", []),
        "message": summary.get("message", ""),
    }


def metrics(run):
    return (run["run"] / "metrics.jsonl").read_bytes()


def told(run):
    """What of a run goes into the record."""
    rungs = [f"{'-' if rung.get('climbed') else ''}{rung['rung']} {rung['level']} at {rung['step']}" for rung in run["rungs"]]
    return {key: run[key] for key in ("code", "steps", "seconds", "message", "lowered")} | {"rungs": rungs}


def final_settings(run, caches):
    """Settings that a run had after its rungs, for a run that has them from its start."""
    level = collections.Counter()
    for rung in run["rungs"]:
        level[rung["rung"]] = rung["level"]
    settings = {}
    if level["caches"]:
        settings |= {key: f"{0 if level['caches'] > 3 else size >> level['caches']} B" for key, size in caches.items()}
    if level["prefetch"] or level["workers"]:
        settings["limits.prefetch"] = 1
    if level["activation_checkpointing"]:
        settings["training.activation_checkpointing"] = True
    return settings


# Two per cent of a small container are less than what the kernel charges ahead.
SPARE = MIB
QAT = "pipeline.qat-language-model.pretraining_steps"
LADDER = {"limits.on_pressure": RUNGS}
# Settings of each system, and its caches. Each has one worker and two batches ahead.
SYSTEMS = {
    "stage2": (LADDER, {"limits.frame_cache": 48 * MIB}),
    "federated": (LADDER, {"dataset.sound-clips.clip_cache": 16 * MIB, "dataset.sound-clips.embedding_cache": 8 * MIB}),
    "vision_language": (
        LADDER | {"training.max_steps": 900, "validation.every_steps": 90},
        {"dataset.image-text.image_cache": 8 * MIB},
    ),
    "qat_gpt2": (
        {"limits.on_pressure": ["caches", "prefetch", "workers", "activation_checkpointing", "park"]}
        | {QAT: 150, "training.max_steps": 350, "validation.every_steps": 30},
        {},
    ),
}


def systems(program, scratch):
    told_of = {}
    for name, (settings, caches) in SYSTEMS.items():
        file = ROOT / "experiments" / f"{name}.toml"
        settings = settings | {"memory.probe": False, "memory.every_steps": 1}
        plain = run(program, file, scratch / name / "plain", settings)
        # Each interval has a validation.
        every = max(2, plain["steps"] // 7)
        lowered = run(program, file, scratch / name / "lowered", settings, [1.03] * 5, every, every, SPARE)
        told_of[name] = told(lowered) | {"ends": lowered["code"] == 0, "undisturbed_seconds": plain["seconds"]}
        if lowered["code"] == 0:
            # In as small a container, from its first steps.
            same = settings | {"limits.on_pressure": ["park"]} | final_settings(lowered, caches)
            last = lowered["lowered"][-1]["limit"]
            again = run(program, file, scratch / name / "again", same, [0], 5, 5, last)
            if again["code"]:
                # That is too small for its first steps.
                again = run(program, file, scratch / name / "free", same)
            told_of[name] |= {
                "same_bits": metrics(lowered) == metrics(plain),
                "same_bits_expected": {rung["rung"] for rung in lowered["rungs"]} <= SAME_BITS,
                "settings_from_the_start": final_settings(lowered, caches),
                "in_as_small_a_container": again["lowered"] != [],
                "slower": again["seconds"] and lowered["seconds"] / again["seconds"] - 1,
            }
        print(name, json.dumps(told_of[name]), flush=True)
    return told_of


def dummy(scratch, rng, **more):
    """A random experiment of the pipeline `dummy`."""
    file = scratch / "trial.toml"
    file.write_text("[pipeline.dummy]\n")
    sizes = {
        "pipeline.dummy.steps_per_epoch": rng.randrange(150, 300),
        "pipeline.dummy.step_microseconds": rng.randrange(1000, 4000),
        "pipeline.dummy.cache_per_step": f"{(cached := rng.randrange(256, 2048))} KiB",
        "pipeline.dummy.activations": f"{rng.randrange(8, 160)} MiB",
        "limits.frame_cache": f"{rng.randrange(16, 96)} MiB",
        "memory.probe": False,
    }
    return file, sizes | more, SPARE + (2 * cached << 10)


def random_descents(program, scratch, count):
    outcomes = []
    for seed in range(count):
        rng = random.Random(seed)
        file, settings, spare = dummy(scratch, rng)
        ladder = rng.sample(RUNGS[:1] + RUNGS[3:4], rng.randrange(1, 3)) + ["park"]
        results = scratch / f"random{seed}"
        plain = run(program, file, results / "plain", settings)
        lowerings = [rng.uniform(1.02, 1.05) for _ in range(rng.randrange(3, 9))]
        every = rng.randrange(12, 24)
        ladder = settings | {"limits.on_pressure": ladder, "limits.recover": rng.random() < 0.5}
        lowered = run(program, file, results / "lowered", ladder, lowerings, 30, every, spare)
        steps, code = lowered["steps"], lowered["code"]
        parked = code == 75
        if parked:
            # Outside of the container.
            code = subprocess.run([program, "resume", str(lowered["run"])], capture_output=True).returncode
        taken = {rung["rung"] for rung in lowered["rungs"]}
        lines = [json.loads(line) for line in metrics(lowered).splitlines()]
        trained = [line["step"] for line in lines if line["kind"] == "train"]
        outcomes.append(
            told(lowered)
            | {
                "seed": seed,
                "parked": parked,
                "right": code == 0
                and trained == list(range(1, plain["steps"] + 1))
                and (not taken <= SAME_BITS or metrics(lowered) == metrics(plain)),
            }
        )
        print(seed, json.dumps(outcomes[-1]), flush=True)
    return {"runs": count, "right": sum(outcome["right"] for outcome in outcomes), "parked": sum(o["parked"] for o in outcomes), "each": outcomes}


def calm(program, scratch, count):
    rungs = 0
    for seed in range(count):
        rng = random.Random(1000 + seed)
        file, settings, _ = dummy(scratch, rng)
        more = {"limits.on_pressure": RUNGS[:1] + RUNGS[3:], "limits.recover": True, "limits.host_memory": "2 GiB"}
        rungs += len(run(program, file, scratch / f"calm{seed}", settings | more)["rungs"])
    return {"runs": count, "rungs": rungs}


def leaks(program, scratch, count):
    outcomes = []
    for seed in range(count):
        rng = random.Random(2000 + seed)
        leak = {
            "pipeline.dummy.leak_per_step": f"{rng.randrange(256, 1024)} KiB",
            "pipeline.dummy.leak_in_ledger": rng.random() < 0.5,
            "pipeline.dummy.steps_per_epoch": 1000,
            "limits.on_pressure": RUNGS[:1] + RUNGS[3:],
        }
        file, settings, _ = dummy(scratch, rng, **leak)
        first = run(program, file, scratch / f"leak{seed}" / "first", settings | {"training.max_steps": 20})
        start = json.loads((first["run"] / "memory.jsonl").read_text().splitlines()[-1])["host"]["rss_peak"]
        limit = {"limits.host_memory": f"{start // MIB + rng.randrange(100, 160)} MiB"}
        parked = run(program, file, scratch / f"leak{seed}" / "parked", settings | limit)
        outcomes.append(told(parked) | {"right": parked["code"] == 75 and {r["rung"] for r in parked["rungs"]} == {"park"}})
        print(seed, json.dumps(outcomes[-1]), flush=True)
    return {"runs": count, "right": sum(outcome["right"] for outcome in outcomes), "each": outcomes}


def main():
    program, kind, *count = sys.argv[1:]
    work = {"systems": systems, "random": random_descents, "calm": calm, "leaks": leaks}[kind]
    with tempfile.TemporaryDirectory(prefix="descent-") as scratch:
        found = work(str(pathlib.Path(program).resolve()), pathlib.Path(scratch), *map(int, count))
    record = ROOT / "benches" / "descent.json"
    everything = json.loads(record.read_text()) if record.exists() else {}
    everything[kind] = found
    record.write_text(json.dumps(everything, indent=1) + "\n")


main()
