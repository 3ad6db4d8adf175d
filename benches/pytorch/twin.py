"""Frame of the twins: training steps of xrun's experiments in PyTorch, timed as a program as it comes would run them.

A twin has the network, losses, optimiser and data of an experiment. Its parameters are those of a checkpoint of xrun, where `--reference`
names a directory that `experiments.refer` has made, and its batches are those of the data set that xrun reads. `compare.py` runs the
twins in turns with xrun, `parity.py` compares losses and gradient norms. Prints one line of JSON.
"""
import argparse
import functools
import json
import pathlib
import resource
import struct
import time
import traceback

import numpy as np
import torch

# Steps before the clock starts.
WARMUP = 3
# Further ones for each kind of step with `torch.compile`: it compiles the first, and the second once more, for any shape.
COMPILATIONS = 4
# Number of different batches of the steps whose inputs are ready.
READY = 12


def read_safetensors(path):
    """Returns the tensors of a file by name, as 32-bit floats."""
    content = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    values = np.frombuffer(content, np.uint8, offset=8 + length)
    return {
        name: torch.from_numpy(values[slice(*about["data_offsets"])].view("<f4").reshape(about["shape"]).copy())
        for name, about in header.items()
        if name != "__metadata__"
    }


def load(model, tensors):
    """Sets all parameters; xrun has linear layers as `[inputs, outputs]`, and Burn's names of scales and shifts."""
    tensors = {name.replace(".gamma", ".weight").replace(".beta", ".bias"): value for name, value in tensors.items()}
    linear = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    tensors = {name: value.T.contiguous() if name in linear else value for name, value in tensors.items()}
    model.load_state_dict(tensors, strict=False)
    own = dict(model.named_parameters())
    assert own.keys() == tensors.keys(), own.keys() ^ tensors.keys()


class Twin:
    """Training of `model`. A subclass sets it, and has the methods of the second half."""

    learning_rate, weight_decay, clip_norm = 1e-3, 0.01, 1.0

    def prepare(self, reference, dataset):
        if reference:
            load(self.model, read_safetensors(reference["model"]))
        # As in xrun and in most programs, scales and shifts do not decay.
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        groups = [
            {"params": [parameter for parameter in parameters if parameter.dim() >= 2], "weight_decay": self.weight_decay},
            {"params": [parameter for parameter in parameters if parameter.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=self.learning_rate)
        self.functions = {False: {}, True: {}}

    def function(self, number, compiled):
        """Returns the loss of the parts of step `number`, compiled once for each kind of step."""
        kind = self.kind(number)
        functions = self.functions[compiled]
        if kind not in functions:
            function = functools.partial(self.loss, kind)
            functions[kind] = torch.compile(function) if compiled else function
        return functions[kind]

    def step(self, number, parts, compiled=False):
        """Returns the loss of step `number` and the norm of its gradients before clipping."""
        total, function = 0.0, self.function(number, compiled)
        for part in parts:
            loss = function(*part)
            loss.backward()
            total += loss.item()
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        norm = torch.nn.utils.clip_grad_norm_([one for one in parameters if one.grad is not None], self.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total, norm.item()

    def kind(self, number):
        """Key of the variant of `loss` that step `number` computes."""
        return None

    def loss(self, kind, *part):
        """Returns the loss of a part of a batch, divided by the items of the whole batch."""
        raise NotImplementedError

    def flops(self):
        """Returns the floating-point operations of the products of a step (mean over kinds), forward and backward."""
        raise NotImplementedError


def peak_rss():
    """Returns the peak RSS so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def warmup_of(twin, compiled):
    """Returns the number of steps before the clock starts."""
    new = {twin.kind(number) for number in range(WARMUP)} - twin.functions[True].keys() if compiled else ()
    return WARMUP + COMPILATIONS * len(new)


def timed(twin, steps, batches, compiled):
    """Returns the seconds of each step after the warm-up and the processor seconds of one; batches come from an iterator."""
    warmup = warmup_of(twin, compiled)
    ends, losses, cpu = [], [], 0.0
    for number in range(warmup + steps):
        if number == warmup:
            cpu, started = time.process_time(), time.perf_counter()
        losses.append(twin.step(number, next(batches), compiled)[0])
        ends.append(time.perf_counter())
    ends = [started, *ends[warmup:]]
    return {
        "seconds": [round(end - begin, 6) for begin, end in zip(ends, ends[1:])],
        "cpu": (time.process_time() - cpu) / steps,
        "rss": peak_rss(),
        "losses": [losses[0], losses[-1]],
    }


def ready(dataset, count):
    """Yields batches that were made before."""
    made = [dataset[number] for number in range(min(count, READY))]
    return (made[number % len(made)] for number in range(count))


def loaded(dataset, count, workers):
    """Yields batches of a DataLoader with its own defaults."""
    return iter(torch.utils.data.DataLoader(dataset, batch_size=None, sampler=range(count), num_workers=workers))


# Runs by name: batches, compiled, threads (0: all).
RUNS = {
    "eager alone": (ready, False, 0),
    "eager data": (loaded, False, 0),
    "compiled alone": (ready, True, 0),
    "compiled data": (loaded, True, 0),
    "one thread alone": (ready, False, 1),
}


def main(kinds, add_arguments, make):
    """Runs a twin from the command line. `make` takes the settings and the reference, and returns a twin and its data set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--reference", type=pathlib.Path, help="directory of parameters and data [default: random ones]")
    parser.add_argument("--runs", nargs="+", choices=list(RUNS), default=["eager alone"])
    add_arguments(parser)
    settings = parser.parse_args()
    found = {"resident_at_start": peak_rss(), "runs": {}}
    torch.set_num_threads(settings.threads)
    torch.manual_seed(1)
    reference = json.loads((settings.reference / "reference.json").read_text()) if settings.reference else None
    twin, dataset = make(settings, reference)
    twin.prepare(reference, dataset)
    for run in settings.runs:
        batches, compiled, threads = RUNS[run]
        torch.set_num_threads(threads or settings.threads)
        count = settings.steps + warmup_of(twin, compiled)
        try:
            iterator = batches(dataset, count, settings.workers) if batches is loaded else batches(dataset, count)
            found["runs"][run] = timed(twin, settings.steps, iterator, compiled)
        except Exception as error:
            if not compiled:
                raise
            found["runs"][run] = {"unavailable": f"{type(error).__name__}: {error}".strip().splitlines()[0][:200]}
            traceback.print_exc()
    found["parameters"] = sum(parameter.numel() for parameter in twin.model.parameters())
    found["flops"] = twin.flops()
    if torch.cuda.is_initialized():
        found |= {"reserved_peak": torch.cuda.max_memory_reserved(), "allocated_peak": torch.cuda.max_memory_allocated()}
    print(json.dumps(found))
