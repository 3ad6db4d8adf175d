"""Causes of growth in the code of the five reports (docs/origins.md), and their remedies: `causes.py CAUSE [reported|remedied]`.

What a step would keep, if the cause were right, is a megabyte or more. Needs PyTorch; `workers` and `images` need Pillow, `progress_bar`
tqdm, `tracker` wandb."""

import argparse
import gc
import os
import tempfile
import time
import tracemalloc

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

MIB = 1 << 20
BATCH, WIDTH = 4096, 64  # an activation has 1 MiB

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("cause")
parser.add_argument("variant", choices=["reported", "remedied"], default="reported", nargs="?")
parser.add_argument("--steps", type=int, default=120)
arguments = parser.parse_args()
REPORTED = arguments.variant == "reported"

torch.manual_seed(1)
torch.set_num_threads(1)
blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4))
optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-3)
data = [torch.randn(BATCH, WIDTH) for _ in range(8)]
kept, numbers = [], {}


def forward(inputs):
    for block in blocks:
        inputs = block(inputs)
    return inputs


def train(step, forward=forward, **backward):
    """Trains for a step; returns its outputs and its loss, whose backward pass is done."""
    optimizer.zero_grad()
    outputs = forward(data[step % len(data)])
    loss = (outputs - data[step % len(data)]).square().mean()
    loss.backward(**backward)
    optimizer.step()
    return outputs, loss


class LossItem:
    """`total_loss += loss.item()`; remedied: `loss.detach().item()`."""

    total = 0.0

    def step(self, step):
        loss = train(step)[1]
        self.total += loss.item() if REPORTED else loss.detach().item()


class LossSum:
    """The sum of losses with their graphs, after their backward passes."""

    total = 0.0

    def step(self, step):
        self.total = self.total + train(step)[1]


class LossNeverBackpropagated:
    """Losses that no backward pass reaches."""

    def step(self, step):
        train(step)
        kept.append(forward(data[0]).mean())


class ProgressBar:
    """`set_postfix` with a dictionary of floats, 200 times a step; remedied: a copy that is cleared."""

    def __init__(self):
        from tqdm import tqdm

        self.bar = tqdm(total=arguments.steps, file=open(os.devnull, "w"))  # noqa: SIM115

    def step(self, step):
        loss = train(step)[1].item()
        for call in range(200):
            losses = {f"loss_{number}": loss + number + call for number in range(60)}
            if REPORTED:
                self.bar.set_postfix(losses, refresh=False)
            else:
                self.bar.set_postfix(refresh=False, **losses.copy())
                losses.clear()
        self.bar.update()


class Outputs:
    """A list of outputs, batch by batch, after their backward passes; remedied: detached."""

    def step(self, step):
        outputs = train(step)[0]
        kept.append(outputs if REPORTED else outputs.detach())


class Embeddings:
    """Cached embeddings that are used without `.detach()`."""

    def step(self, step):
        def on_device(inputs):
            embeddings = inputs if REPORTED else inputs.detach()
            return forward(embeddings.to("cpu"))

        train(step, on_device)


class RunningRange:
    """`running_min = running_min * 0.9 + min_val.cpu() * 0.1` for values without a graph; remedied: in place, in a buffer."""

    tracked = False

    def __init__(self):
        self.running_min = torch.zeros(BATCH, WIDTH)

    def forward(self, inputs):
        outputs = forward(inputs)
        with torch.set_grad_enabled(self.tracked and REPORTED):
            min_val = torch.minimum(outputs, torch.zeros(1))
            if REPORTED:
                self.running_min = self.running_min * 0.9 + min_val.cpu() * 0.1
            else:
                self.running_min.mul_(0.9).add_(min_val, alpha=0.1)
        return outputs

    def step(self, step):
        train(step, self.forward)


class RunningRangeTracked(RunningRange):
    """The same for activations with a graph; remedied: with `torch.no_grad()`."""

    tracked = True


class Checkpoint:
    """`use_reentrant=False`; remedied: a wrapper and `preserve_rng_state=False`."""

    def step(self, step):
        def forward(inputs):
            for block in blocks:
                if REPORTED:
                    inputs = checkpoint(block, inputs, use_reentrant=False)
                else:
                    inputs = checkpoint(lambda *given, block=block: block(*given), inputs, use_reentrant=False, preserve_rng_state=False)
            return inputs

        train(step, forward)


class RetainGraph:
    """`backward()`; remedied: `backward(retain_graph=False)`."""

    def step(self, step):
        train(step, **({} if REPORTED else {"retain_graph": False}))


class Cleanup:
    """No cleanup; remedied: `zero_grad`, `gc.collect()` after every 10 steps. Prints the processor time of both, each step."""

    def __init__(self):
        self.parameters = nn.ParameterList(nn.Parameter(torch.zeros(8)) for _ in range(148))  # as many as GPT-2 has

    def step(self, step):
        train(step)
        sum(parameter.sum() for parameter in self.parameters).backward()
        if not REPORTED and step % 10 == 0:
            numbers["zero"] = processor_ms(lambda: self.parameters.zero_grad(set_to_none=True))
            numbers["gc"] = processor_ms(gc.collect)


class QuantisedWeights:
    """LoRA matrices that are quantised anew in each forward pass, and `x @ A @ B`; remedied: two products."""

    def __init__(self):
        self.a, self.b = nn.Parameter(torch.randn(WIDTH, 512)), nn.Parameter(torch.randn(512, WIDTH))

    def step(self, step):
        def quantise(weights):
            return weights + ((weights * 8).round() / 8 - weights).detach()

        def lora(inputs):
            a, b = quantise(self.a), quantise(self.b)
            if REPORTED:
                return forward(inputs) + inputs @ a @ b
            return forward(inputs) + torch.matmul(torch.matmul(inputs, a), b)

        train(step, lora)


class Validation:
    """Six lists of 640 predictions, local to the validation; remedied: `del` and a collection."""

    def step(self, step):
        train(step)
        self.validate()

    def validate(self):
        boxes, scores, classes, overlaps, true_boxes, true_classes = ([] for _ in range(6))
        for _ in range(640):
            for found in (boxes, scores, classes, overlaps, true_boxes, true_classes):
                found.append(torch.zeros(100, 4).numpy())
        if not REPORTED:
            del boxes, scores, classes, overlaps, true_boxes, true_classes
            gc.collect()


class Preprocess:
    """All examples are processed and kept when the data set is opened; remedied: on demand."""

    def __init__(self):
        self.examples = [self.process(number) for number in range(200)] if REPORTED else None

    def process(self, number):
        return torch.full((MIB // 8,), number)

    def step(self, step):
        train(step)
        (self.examples[step % 200] if self.examples else self.process(step)).sum()


class Labels:
    """Labels are cloned in each batch to log them; remedied: every 10 batches, with `.item()`."""

    labels = torch.zeros(MIB // 8, dtype=torch.long)

    def step(self, step):
        train(step)
        if REPORTED or step % 10 == 0:
            labels = self.labels.clone()
            labels[labels == 0] = -100
            labels.sum().item()


class Tracker:
    """wandb logs 1,000 numbers a step."""

    def __init__(self):
        import wandb

        self.directory = tempfile.TemporaryDirectory()
        self.run = wandb.init(mode="offline", dir=self.directory.name, settings=wandb.Settings(silent=True))

    def step(self, step):
        loss = train(step)[1].item()
        self.run.log({f"metric_{number}": loss + number for number in range(1000)})


class Images:
    """Images that Pillow decodes at first use, each in its step; remedied: `.load()` for all at once."""

    def __init__(self):
        from PIL import Image

        self.directory = tempfile.TemporaryDirectory()
        names = [f"{self.directory.name}/{number}.png" for number in range(40)]
        for name in names:
            Image.new("RGB", (600, 600)).save(name)
        self.images = [Image.open(name) for name in names]
        if not REPORTED:
            for image in self.images:
                image.load()

    def step(self, step):
        train(step)
        self.images[step % 40].resize((8, 8))


class Workers:
    """Four processes of a data loader with a data set of Pillow images; remedied: none."""

    def __init__(self):
        from PIL import Image

        self.images = [Image.new("RGB", (600, 600)) for _ in range(60)]
        self.batches = iter(torch.utils.data.DataLoader(self, num_workers=4 if REPORTED else 0))

    def __len__(self):
        return arguments.steps

    def __getitem__(self, number):
        return torch.tensor(list(self.images[number % 60].resize((8, 8)).tobytes()))

    def step(self, step):
        next(self.batches)
        train(step)


class Tracemalloc:
    """The ten top lines of tracemalloc, for a list of Python's numbers. `named` is the part of the kept bytes that they name."""

    bytes = 20_000 * 32

    def __init__(self):
        tracemalloc.start()

    def keep(self, step):
        kept.append([float(number) for number in range(step, step + 20_000)])

    def step(self, step):
        train(step)
        self.keep(step)
        if step % 20 == 0:
            lines = range(self.keep.__code__.co_firstlineno, self.keep.__code__.co_firstlineno + 3)
            top = tracemalloc.take_snapshot().statistics("lineno")[:10]
            own = [line.size for line in top if line.traceback[0].filename == __file__ and line.traceback[0].lineno in lines]
            numbers["named"] = sum(own) / (len(kept) * self.bytes)


class TracemallocTensors(Tracemalloc):
    """The same for a list of tensors."""

    bytes = MIB

    def keep(self, step):
        kept.append(torch.zeros(MIB // 4))


class Objects:
    """Objects are analysed at the end. `named` is the part of the kept megabytes that the tensors among them have."""

    def keep(self):
        kept.append(torch.zeros(MIB // 4))

    def step(self, step):
        train(step)
        self.keep()
        if step % 20 == 0:
            tensors = [found for found in gc.get_objects() if isinstance(found, torch.Tensor) and found.numel() >= MIB // 4]
            numbers["named"] = (len(tensors) - len(data)) / len(kept) / (1 if type(self) is Objects else 4)


class ObjectsOfGraph(Objects):
    """The same for what a graph saves: the activations of four blocks."""

    def keep(self):
        kept.append(forward(data[0]).mean())


def processor_ms(work):
    started = time.process_time()
    work()
    return 1e3 * (time.process_time() - started)


if __name__ == "__main__":
    name = "".join(word.title() for word in arguments.cause.split("_"))
    cause = globals()[name]()
    for step in range(1, arguments.steps + 1):
        cause.step(step)
        shown = "".join(f" {name} {number:.6f}" for name, number in numbers.items())
        print(f"step {step} loss {1 / step:.6f}{shown}", flush=True)
        # Time for a sample of memory.
        time.sleep(0.01)
