"""A training step in xrun and in PyTorch, in turns, on the same two cores: time, processor time, peak memory.

    cargo build --release
    python benches/pytorch/compare.py                            # target/release/xrun beside PyTorch
    python benches/pytorch/compare.py --kinds detection triplet  # some of the steps
    python benches/pytorch/compare.py --size large               # of larger models
    python benches/pytorch/compare.py --xrun old=PATH new=PATH   # several programs, to see what a change does

`plain` and `quantised` are steps of experiments/qat_gpt2.toml, on sequences of 64 tokens that all count; `detection` and
`triplet` are those of experiments/stage2.toml, `federated` one of a node of experiments/federated.toml, and `vision-language`
those of experiments/vision_language.toml. Of `--size large` are queries of 320 pixels with up to 256 channels, and 6 layers of
width 384 with 8 sequences of 256 tokens. Needs PyTorch. See "Where the time goes" in docs/qat.md and docs/memory.md.
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
# Else PyTorch's threads spin while they wait: on a busy machine for longer than they compute.
PASSIVE = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


def run(command, environment):
    """Processor seconds, peak resident bytes, and what the program printed."""
    process = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    printed, problems = process.stdout.read(), process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command[0]} failed:\n{problems.decode()}{printed.decode()}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, printed.decode()


def of_language_model(kind, steps):
    """Overrides of the experiment."""
    # An experiment that never quantises is refused, so one step more does.
    return {
        "training.max_steps": steps + (kind == "plain"),
        "training.schedule.cosine.warmup_steps": 0,
        "pipeline.qat-language-model.sequence_length": 64,
        "pipeline.qat-language-model.loss_on": "all",
        "pipeline.qat-language-model.pretraining_steps": steps if kind == "plain" else 0,
        "pipeline.qat-language-model.weight_bits": "[32,8,4]",
        "pipeline.qat-language-model.activation_bits": "[32,8,8]",
        "pipeline.qat-language-model.key_value_bits": "[32,8,4]",
    }


def of_detector(kind, steps):
    """Overrides of the experiment."""
    return {
        "training.max_steps": steps,
        "training.schedule.cosine.warmup_steps": 0,
        "pipeline.fewshot-detection.triplet_ratio": 1.0 if kind == "triplet" else 0.0,
    }


def of_federation(kind, steps):
    """Overrides of the experiment."""
    # One node that never ends its turn, and whose first epoch, in which clips are encoded, is short.
    return {
        "training.max_steps": steps,
        "training.epochs": 1,
        "pipeline.federated-adapters.nodes": 1,
        "pipeline.federated-adapters.local_epochs": 1000,
        "dataset.sound-clips.generated.clips_per_class": 10,
    }


def of_vision_language(kind, steps):
    """Overrides of the experiment."""
    return {"training.max_steps": steps, "training.schedule.cosine.warmup_steps": 0}


# The experiment, its overrides, and the script beside this file.
KINDS = {
    "federated": ("federated", of_federation, "federated_step.py"),
    "vision-language": ("vision_language", of_vision_language, "vision_language_step.py"),
    "plain": ("qat_gpt2", of_language_model, "gpt2_step.py"),
    "quantised": ("qat_gpt2", of_language_model, "gpt2_step.py"),
    "detection": ("stage2", of_detector, "detection_step.py"),
    "triplet": ("stage2", of_detector, "detection_step.py"),
}
# Of `--size large`: more overrides of the experiment, and arguments of the script.
LANGUAGE_MODEL = {
    "model.gpt2.layers": 6,
    "model.gpt2.heads": 6,
    "model.gpt2.width": 384,
    "model.gpt2.context": 256,
    "training.batch_size": 8,
    "pipeline.qat-language-model.sequence_length": 256,
    # Texts of 256 tokens are to be found among paragraphs of eight sentences.
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
EVERYWHERE = {
    "memory.probe": "false",
    "limits.threads": 2,
    "validation.every_epochs": 0,
    "validation.every_steps": 0,
    "validation.at_start": "false",
    "checkpoint.every_steps": 0,
}


def xrun(program, kind, size, steps, cache):
    """Seconds of each step, processor seconds of the whole run, peak resident bytes, peak heap bytes."""
    experiment, overrides_of, _ = KINDS[kind]
    overrides = EVERYWHERE | overrides_of(kind, steps) | (LARGE[kind][0] if size == "large" else {})
    with tempfile.TemporaryDirectory() as results:
        command = [program, "run", str(ROOT / f"experiments/{experiment}.toml"), "--device", "cpu", "--results", results]
        command += ["--progress", "none"] + [f"-s{key}={value}" for key, value in overrides.items()]
        cpu, resident, _ = run(command, {"XRUN_CACHE": cache})
        (lines,) = pathlib.Path(results).glob(f"{experiment}/2*/memory.jsonl")
        lines = [json.loads(line) for line in lines.read_text().splitlines()]
        parts = ["data", "calibration", "teacher", "encode", "forward", "backward", "forward_backward"]
        parts += ["optimizer", "transfer"]
        steps = [line for line in lines if line["point"] == "step"][:steps]
        seconds = [sum(line["phases_us"].get(part, 0) for part in parts) / 1e6 for line in steps]
        return seconds, cpu, resident, lines[-1]["host"]["heap_peak"]


def pytorch(kind, size, steps):
    command = [sys.executable, str(pathlib.Path(__file__).with_name(KINDS[kind][2])), kind, "--steps", str(steps)]
    _, resident, printed = run(command + (LARGE[kind][1] if size == "large" else []), PASSIVE)
    found = json.loads(printed)
    return found["seconds"], found["cpu"], resident, resident - found["resident_at_start"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xrun", nargs="+", default=[f"xrun={ROOT / 'target/release/xrun'}"], metavar="NAME=PROGRAM")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60, help="of the longer run; the shorter has a quarter")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), help="all that have the size")
    parser.add_argument("--size", choices=["small", "large"], default="small")
    settings = parser.parse_args()
    programs = dict(program.split("=", 1) for program in settings.xrun)
    short, size = settings.steps // 4, settings.size
    of_size = list(LARGE if size == "large" else KINDS)
    kinds = settings.kinds or of_size
    if missing := set(kinds) - set(of_size):
        parser.error(f"not of this size: {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory() as cache:
        ways = {name: lambda kind, steps, at=path: xrun(at, kind, size, steps, cache) for name, path in programs.items()}
        ways["pytorch"] = lambda kind, steps: pytorch(kind, size, steps)
        for kind in kinds:
            for way in ways.values():
                way(kind, 3)  # generated data, page cache
            found = {name: {"seconds": [], "cpu": [], "resident": [], "own": []} for name in ways}
            for turn in range(settings.turns):
                # Who begins changes with the turn.
                order = list(ways) if turn % 2 else list(reversed(ways))
                for name in order:
                    seconds, cpu, resident, own = ways[name](kind, settings.steps)
                    if name != "pytorch":
                        # Start and warm-up are in both runs, and not in their difference. PyTorch measures within.
                        cpu = (cpu - ways[name](kind, short)[1]) / (settings.steps - short)
                    of = found[name]
                    of["seconds"] += seconds[3:]
                    of["cpu"].append(cpu)
                    of["resident"].append(resident)
                    of["own"].append(own)
            show(kind, found)


def show(kind, found):
    print(f"\n{kind} step, milliseconds (load {os.getloadavg()[0]:.1f}); memory in MiB")
    print(f"{'':10} {'fastest':>8} {'median':>8} {'quartiles':>16} {'processor':>10} {'range':>14} {'resident':>9} {'own':>7}")
    cpu = {name: statistics.median(of["cpu"]) * 1e3 for name, of in found.items()}
    for name, of in found.items():
        low, middle, high = (value * 1e3 for value in statistics.quantiles(of["seconds"], n=4))
        span = f"{min(of['cpu']) * 1e3:.1f} to {max(of['cpu']) * 1e3:.1f}"
        print(
            f"{name:10} {min(of['seconds']) * 1e3:8.1f} {middle:8.1f} {f'{low:.1f} to {high:.1f}':>16} "
            f"{cpu[name]:10.1f} {span:>14} {max(of['resident']) / 2**20:9.0f} {max(of['own']) / 2**20:7.0f}"
        )
    for name in found:
        if name != "pytorch":
            print(f"{name}: {cpu[name] / cpu['pytorch']:.2f} times PyTorch's processor time", end="; ")
            print(f"{max(found[name]['resident']) / max(found['pytorch']['resident']):.2f} times its peak memory", flush=True)


if __name__ == "__main__":
    main()
