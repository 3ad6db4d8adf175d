"""Runs of xrun that the twins have a counterpart of: experiments and their overrides, results, and references for the twins."""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Steps of a run that belong to its first epoch, in which sounds are encoded.
FIRST_USE = 10
PHASES = ["encode", "teacher", "forward", "backward", "forward_backward", "optimizer", "transfer"]

# Sequences of 64 tokens that are full to a sixth, all of which have a loss. Pretraining is in full precision.
LANGUAGE_MODEL = {
    "pipeline.qat-language-model.sequence_length": 64,
    "pipeline.qat-language-model.loss_tokens": "all",
    "pipeline.qat-language-model.weight_bits": "[32,8,4]",
    "pipeline.qat-language-model.activation_bits": "[32,8,8]",
    "pipeline.qat-language-model.kv_cache_bits": "[32,8,4]",
    "dataset.question-answers.generated.sentences_per_paragraph": 4,
}
# One node whose round never ends, with few clips, as the first epoch encodes them, by an encoder that is hardly trained.
FEDERATED = {
    "training.epochs": 1,
    "pipeline.federated-adapters.nodes": 1,
    "pipeline.federated-adapters.local_epochs": 1000,
    "pipeline.federated-adapters.pretraining_steps": 10,
    "dataset.sound-clips.generated.clips_per_class": 10,
    "dataset.sound-clips.generated.other_clips_per_class": 10,
}
# Kind of step: experiment, overrides, script.
KINDS = {
    "detection": ("stage2", {"pipeline.fewshot-detection.triplet_ratio": 0.0}, "detection_step.py"),
    "triplet": ("stage2", {"pipeline.fewshot-detection.triplet_ratio": 1.0}, "detection_step.py"),
    "plain": ("qat_gpt2", LANGUAGE_MODEL, "gpt2_step.py"),
    "quantised": ("qat_gpt2", LANGUAGE_MODEL, "gpt2_step.py"),
    "vision-language": ("vision_language", {}, "vision_language_step.py"),
    "federated": ("federated", FEDERATED, "federated_step.py"),
}
# Larger models: further overrides, and arguments of the script.
LARGE_LANGUAGE_MODEL = {
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
LARGE_LANGUAGE_MODEL_ARGUMENTS = "--layers 6 --heads 6 --width 384 --context 256 --batch 8 --length 256 --vocabulary 300".split()
LARGE_DETECTOR = {"pipeline.fewshot-detection.image_size": 320, "model.reference-detector.channels": "[32,64,128,256]"}
LARGE = {
    "plain": (LARGE_LANGUAGE_MODEL, LARGE_LANGUAGE_MODEL_ARGUMENTS),
    "quantised": (LARGE_LANGUAGE_MODEL, LARGE_LANGUAGE_MODEL_ARGUMENTS),
    "detection": (LARGE_DETECTOR, "--side 320 --channels 32 64 128 256".split()),
}
COMMON = {
    "memory.probe": "false",
    "limits.threads": 2,
    "validation.every_epochs": 0,
    "validation.every_steps": 0,
    "validation.at_start": "false",
    "checkpoint.every_steps": 0,
    # A constant learning rate.
    "training.schedule.cosine.warmup_steps": 0,
    "training.schedule.cosine.final_lr_fraction": 1.0,
}


def overrides_of(kind, size, steps):
    overrides = COMMON | KINDS[kind][1] | (LARGE[kind][0] if size == "large" else {})
    if kind == "federated":
        overrides = {key: value for key, value in overrides.items() if ".cosine." not in key}
    if KINDS[kind][0] == "qat_gpt2":
        overrides["pipeline.qat-language-model.pretraining_steps"] = steps if kind == "plain" else 0
        # xrun refuses an experiment that never quantises, so `plain` has one quantised step more.
        steps += kind == "plain"
    return overrides | {"training.max_steps": steps}


def run(command, environment):
    """Returns processor seconds, peak RSS in bytes, and the standard output of a command."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=errors)
        stdout = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        if status:
            errors.seek(0)
            sys.exit(f"{' '.join(map(str, command))} failed:\n{errors.read().decode()}{stdout.decode()}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, stdout.decode()


@contextlib.contextmanager
def finished_run(program, kind, size, steps, cache, further, experiment=None):
    """Yields the directory of a run, with its processor seconds and peak RSS."""
    overrides = overrides_of(kind, size, steps) | further
    experiment = experiment or ROOT / f"experiments/{KINDS[kind][0]}.toml"
    with tempfile.TemporaryDirectory() as results:
        command = [program, "run", str(experiment), "--device", "cpu", "--results", results, "--progress", "none"]
        command += [f"-s{key}={value}" for key, value in overrides.items()]
        cpu, rss, _ = run(command, {"XRUN_CACHE": str(cache)})
        (directory,) = pathlib.Path(results).glob("*/2*")
        yield directory, cpu, rss


def timed(program, kind, size, steps, cache, alone):
    """Returns the seconds of each step, processor seconds of the run, peak RSS and peak heap in bytes.

    `alone`: without a data worker, and without the phase in which the training thread prepares the batch; otherwise the whole wall clock
    from the end of a step to that of the next, with the experiment's worker.
    """
    warmup = FIRST_USE if kind == "federated" else 3
    further = {"limits.workers": 0} if alone else {}
    with finished_run(program, kind, size, warmup + steps, cache, further) as (directory, cpu, rss):
        lines = [json.loads(line) for line in (directory / "memory.jsonl").read_text().splitlines()]
        of_steps = [line for line in lines if line["point"] == "step"][: warmup + steps]
        if alone:
            seconds = [sum(line["phases_us"].get(phase, 0) for phase in PHASES) / 1e6 for line in of_steps]
        else:
            ends = [line["time_us"] / 1e6 for line in of_steps]
            seconds = [0.0] + [end - begin for begin, end in zip(ends, ends[1:])]
        return {"seconds": [round(one, 6) for one in seconds[warmup:]], "cpu": cpu, "rss": rss, "heap": lines[-1]["host"]["heap_peak"]}


DATA = {"stage2": "generated-*", "qat_gpt2": "questions-*.json", "vision_language": "images-*", "federated": "sounds-*"}


def refer(program, kind, size, cache, directory, experiment=None, data=None):
    """Makes a reference for a twin in `directory`: initial parameters, of a run with a learning rate of 0, and places of data."""
    directory.mkdir(parents=True, exist_ok=True)
    further = {"optimizer.adamw.learning_rate": 0}
    with finished_run(program, kind, size, 1, cache, further, experiment) as (results, _, _):
        (model,) = results.glob("checkpoints/*/model.safetensors")
        (directory / "model.safetensors").write_bytes(model.read_bytes())
    if data is None:
        (data,) = (path for path in cache.glob(DATA[KINDS[kind][0]]) if path.suffix != ".sha256")
    reference = {"model": str(directory / "model.safetensors"), "data": str(data)}
    reference |= {"encoder": str(path) for path in cache.glob("encoders/*.safetensors")}
    (directory / "reference.json").write_text(json.dumps(reference))
    return directory


def arguments(kind, size):
    """Returns the script of a twin and its arguments."""
    script = pathlib.Path(__file__).with_name(KINDS[kind][2])
    return [str(script), kind, *(LARGE[kind][1] if size == "large" else [])]


def version(program):
    return re.sub(r"^\S+ ", "", run([program, "--version"], {})[2].strip())
