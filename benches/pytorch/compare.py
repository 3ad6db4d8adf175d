"""Compares a training step in xrun and in PyTorch on the same two cores: time, processor time, peak memory.

    cargo build --release
    python benches/pytorch/compare.py                            # target/release/xrun and PyTorch
    python benches/pytorch/compare.py --kinds detection triplet  # some of the steps
    python benches/pytorch/compare.py --size large               # of larger models
    python benches/pytorch/compare.py --xrun old=PATH new=PATH   # several builds, to measure a change

`plain` and `quantised` are steps of experiments/qat_gpt2.toml on sequences of 64 tokens, all of which have a loss; `detection` and
`triplet` are steps of experiments/stage2.toml, `federated` is a step of a node of experiments/federated.toml, and
`vision-language` a step of experiments/vision_language.toml. `--size large` uses queries of 320 pixels and up to 256 channels, and
6 layers of width 384 with 8 sequences of 256 tokens. Needs PyTorch. See "Speed" in docs/qat.md and docs/memory.md.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Otherwise PyTorch's threads spin while they wait, which distorts processor time on a busy machine.
OPENMP_PASSIVE = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


def run(command, environment):
    """Returns processor seconds, peak RSS in bytes, and the standard output of a command."""
    process = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stdout, stderr = process.stdout.read(), process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command[0]} failed:\n{stderr.decode()}{stdout.decode()}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, stdout.decode()


def language_model_overrides(kind, steps):
    """Returns the overrides of the experiment."""
    # xrun refuses an experiment that never quantises, so `plain` has one quantised step more.
    return {
        "training.max_steps": steps + (kind == "plain"),
        "training.schedule.cosine.warmup_steps": 0,
        "pipeline.qat-language-model.sequence_length": 64,
        "pipeline.qat-language-model.loss_tokens": "all",
        "pipeline.qat-language-model.pretraining_steps": steps if kind == "plain" else 0,
        "pipeline.qat-language-model.weight_bits": "[32,8,4]",
        "pipeline.qat-language-model.activation_bits": "[32,8,8]",
        "pipeline.qat-language-model.kv_cache_bits": "[32,8,4]",
    }


def detector_overrides(kind, steps):
    """Returns the overrides of the experiment."""
    return {
        "training.max_steps": steps,
        "training.schedule.cosine.warmup_steps": 0,
        "pipeline.fewshot-detection.triplet_ratio": 1.0 if kind == "triplet" else 0.0,
    }


def federation_overrides(kind, steps):
    """Returns the overrides of the experiment."""
    # One node whose round never ends, with few clips, as the first epoch encodes them.
    return {
        "training.max_steps": steps,
        "training.epochs": 1,
        "pipeline.federated-adapters.nodes": 1,
        "pipeline.federated-adapters.local_epochs": 1000,
        "dataset.sound-clips.generated.clips_per_class": 10,
    }


def vision_language_overrides(kind, steps):
    """Returns the overrides of the experiment."""
    return {"training.max_steps": steps, "training.schedule.cosine.warmup_steps": 0}


# Kind of step: experiment, its overrides, PyTorch script.
KINDS = {
    "federated": ("federated", federation_overrides, "federated_step.py"),
    "vision-language": ("vision_language", vision_language_overrides, "vision_language_step.py"),
    "plain": ("qat_gpt2", language_model_overrides, "gpt2_step.py"),
    "quantised": ("qat_gpt2", language_model_overrides, "gpt2_step.py"),
    "detection": ("stage2", detector_overrides, "detection_step.py"),
    "triplet": ("stage2", detector_overrides, "detection_step.py"),
}
# `--size large`: additional overrides of the experiment, and arguments of the script.
LANGUAGE_MODEL = {
    "model.gpt2.layers": 6,
    "model.gpt2.heads": 6,
    "model.gpt2.hidden_size": 384,
    "model.gpt2.context_length": 256,
    "training.batch_size": 8,
    "pipeline.qat-language-model.sequence_length": 256,
    # Paragraphs of eight sentences contain texts of 256 tokens.
    "dataset.question-answers.vocabulary_size": 300,
    "dataset.question-answers.generated.sentences_per_paragraph": 8,
}
DETECTOR = {"pipeline.fewshot-detection.image_size": 320, "model.reference-detector.channels": "[32,64,128,256]"}
LANGUAGE_MODEL_ARGUMENTS = "--layers 6 --heads 6 --width 384 --context 256 --batch 8 --length 256 --vocabulary 300".split()
DETECTOR_ARGUMENTS = "--side 320 --channels 32 64 128 256".split()
LARGE = {
    "plain": (LANGUAGE_MODEL, LANGUAGE_MODEL_ARGUMENTS),
    "quantised": (LANGUAGE_MODEL, LANGUAGE_MODEL_ARGUMENTS),
    "detection": (DETECTOR, DETECTOR_ARGUMENTS),
}
COMMON_OVERRIDES = {
    "memory.probe": "false",
    "limits.threads": 2,
    "validation.every_epochs": 0,
    "validation.every_steps": 0,
    "validation.at_start": "false",
    "checkpoint.every_steps": 0,
}


def xrun(program, kind, size, steps, cache):
    """Runs xrun; returns seconds of each step, processor seconds of the run, peak RSS and peak heap in bytes."""
    experiment, overrides_of, _ = KINDS[kind]
    overrides = COMMON_OVERRIDES | overrides_of(kind, steps) | (LARGE[kind][0] if size == "large" else {})
    with tempfile.TemporaryDirectory() as results:
        command = [program, "run", str(ROOT / f"experiments/{experiment}.toml"), "--device", "cpu", "--results", results]
        command += ["--progress", "none"] + [f"-s{key}={value}" for key, value in overrides.items()]
        cpu, rss, _ = run(command, {"XRUN_CACHE": cache})
        (lines,) = pathlib.Path(results).glob(f"{experiment}/2*/memory.jsonl")
        lines = [json.loads(line) for line in lines.read_text().splitlines()]
        phases = ["data", "calibration", "teacher", "encode", "forward", "backward", "forward_backward"]
        phases += ["optimizer", "transfer"]
        steps = [line for line in lines if line["point"] == "step"][:steps]
        seconds = [sum(line["phases_us"].get(phase, 0) for phase in phases) / 1e6 for line in steps]
        return seconds, cpu, rss, lines[-1]["host"]["heap_peak"]


def pytorch(kind, size, steps):
    """Runs a PyTorch script; returns seconds of each step, processor seconds of a step, peak RSS and its growth in bytes."""
    command = [sys.executable, str(pathlib.Path(__file__).with_name(KINDS[kind][2])), kind, "--steps", str(steps)]
    _, rss, stdout = run(command + (LARGE[kind][1] if size == "large" else []), OPENMP_PASSIVE)
    found = json.loads(stdout)
    return found["seconds"], found["cpu"], rss, rss - found["resident_at_start"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xrun", nargs="+", default=[f"xrun={ROOT / 'target/release/xrun'}"], metavar="NAME=PROGRAM")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60, help="steps of the long run; the short run has a quarter")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), help="kinds of steps [default: all of the size]")
    parser.add_argument("--size", choices=["small", "large"], default="small")
    settings = parser.parse_args()
    programs = dict(program.split("=", 1) for program in settings.xrun)
    short, size = settings.steps // 4, settings.size
    of_size = list(LARGE if size == "large" else KINDS)
    kinds = settings.kinds or of_size
    if missing := set(kinds) - set(of_size):
        parser.error(f"no such step of this size: {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory() as cache:
        runners = {name: lambda kind, steps, at=path: xrun(at, kind, size, steps, cache) for name, path in programs.items()}
        runners["pytorch"] = lambda kind, steps: pytorch(kind, size, steps)
        for kind in kinds:
            for runner in runners.values():
                runner(kind, 3)  # warm-up: generates the data, fills the page cache
            found = {name: {"seconds": [], "cpu": [], "rss": [], "own": []} for name in runners}
            for round in range(settings.turns):
                # The order alternates.
                order = list(runners) if round % 2 else list(reversed(runners))
                for name in order:
                    seconds, cpu, rss, own = runners[name](kind, settings.steps)
                    if name != "pytorch":
                        # Start-up cancels out in the difference of a long and a short run. The PyTorch script excludes it itself.
                        cpu = (cpu - runners[name](kind, short)[1]) / (settings.steps - short)
                    measured = found[name]
                    measured["seconds"] += seconds[3:]
                    measured["cpu"].append(cpu)
                    measured["rss"].append(rss)
                    measured["own"].append(own)
            show(kind, found)


def show(kind, found):
    """Prints the table of a kind of step."""
    print(f"\n{kind} step, milliseconds (load {os.getloadavg()[0]:.1f}); memory in MiB")
    print(f"{'':10} {'fastest':>8} {'median':>8} {'quartiles':>16} {'processor':>10} {'range':>14} {'RSS':>9} {'own':>7}")
    cpu = {name: statistics.median(of["cpu"]) * 1e3 for name, of in found.items()}
    for name, of in found.items():
        low, median, high = (value * 1e3 for value in statistics.quantiles(of["seconds"], n=4))
        span = f"{min(of['cpu']) * 1e3:.1f} to {max(of['cpu']) * 1e3:.1f}"
        print(
            f"{name:10} {min(of['seconds']) * 1e3:8.1f} {median:8.1f} {f'{low:.1f} to {high:.1f}':>16} "
            f"{cpu[name]:10.1f} {span:>14} {max(of['rss']) / 2**20:9.0f} {max(of['own']) / 2**20:7.0f}"
        )
    for name in found:
        if name != "pytorch":
            print(f"{name}: {cpu[name] / cpu['pytorch']:.2f} times PyTorch's processor time", end="; ")
            print(f"{max(found[name]['rss']) / max(found['pytorch']['rss']):.2f} times its peak memory", flush=True)


if __name__ == "__main__":
    main()
