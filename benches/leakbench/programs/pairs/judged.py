"""Pairs that judge the agent, once."""

import collections
import concurrent.futures
import copy
import dataclasses
import gc
import logging
import mmap
import threading
import weakref

from pair import batch, main, pair, small_model, steps, update


class Evaluator:
    def __init__(self):
        self.outputs = []

    def run(self, model):
        import torch

        with torch.no_grad():
            for _ in range(4):
                self.outputs.append(model[:2](batch(4096)[0]))


@pair(line=["self.outputs.append"], holder=["outputs"])
def evaluator_never_reset(leaky):
    model, optimizer = small_model()
    evaluator = Evaluator()
    for step in steps():
        update(model, optimizer, *batch())
        if step % 30 == 0:
            evaluator.run(model)
            if not leaky:
                evaluator.outputs.clear()


@pair(line=['stats["loss"] = stats["loss"] +', 'stats["loss"] +='], holder=["stats"])
def running_loss(leaky):
    from torch.nn import functional

    model, optimizer = small_model()
    stats = {"loss": 0.0, "count": 0}
    for _ in steps():
        inputs, labels = batch()
        loss = functional.cross_entropy(model(inputs), labels)
        stats["loss"] = stats["loss"] + (loss if leaky else loss.item())
        stats["count"] += 1
        optimizer.zero_grad()
        functional.mse_loss(model(inputs), inputs[:, :10]).backward()
        optimizer.step()


@pair(line=["register_forward_hook"], holder=["_forward_hooks"])
def hook_each_step(leaky):
    model, optimizer = small_model()
    for _ in steps():
        inputs, labels = batch(384)
        handle = model[0].register_forward_hook(lambda module, given, output, kept=inputs: None)
        update(model, optimizer, inputs, labels)
        if not leaky:
            handle.remove()


def _stream(leaky):
    import torch
    from torch.utils.data import IterableDataset

    class Stream(IterableDataset):
        def __iter__(self):
            seen = []
            while True:
                sample = torch.randn(32, 256)
                seen.append(sample)
                if not leaky:
                    del seen[:-4]
                yield sample

    return Stream()


@pair(line=["seen.append", "sample = torch.randn"], holder=["seen"])
def stream_in_worker(leaky):
    from torch.utils.data import DataLoader

    model, optimizer = small_model()
    loader = iter(DataLoader(_stream(leaky), batch_size=12, num_workers=1, multiprocessing_context="fork"))
    for _ in steps():
        inputs = next(loader).flatten(0, 1)
        update(model, optimizer, inputs, inputs[:, :10].argmax(1))


@pair(line=["averages.append", "copy.deepcopy"], holder=["averages"])
def weight_copies(leaky):
    model, optimizer = small_model()
    averages = collections.deque(maxlen=None if leaky else 2)
    for step in steps():
        update(model, optimizer, *batch())
        if step % 10 == 0:
            averages.append(copy.deepcopy([model.state_dict() for _ in range(10)]))


@dataclasses.dataclass
class Transition:
    state: object
    action: object
    reward: float


class Memory:
    def __init__(self, size):
        self.transitions = collections.deque(maxlen=size)

    def push(self, *values):
        self.transitions.append(Transition(*values))


@pair(line=["self.transitions.append", "memory.push"], holder=["transitions"])
def transitions(leaky):
    model, optimizer = small_model()
    memory = Memory(None if leaky else 8)
    for step in steps():
        inputs, labels = batch(384)
        update(model, optimizer, inputs, labels)
        memory.push(inputs.clone(), labels, 1.0)


MASKS = {}


def mask_of(step):
    import torch

    if step not in MASKS:
        MASKS[step] = torch.ones(384, 256).tril()
    return MASKS[step]


@pair(line=["MASKS[step] ="], holder=["MASKS"])
def masks_by_step(leaky):
    model, optimizer = small_model()
    for step in steps():
        inputs, labels = batch(384)
        update(model, optimizer, inputs * mask_of(step if leaky else 0), labels)


@pair(line=["mean = 0.9 * mean", "mean = mean *"], holder=["mean"])
def running_mean(leaky):
    import torch

    model, optimizer = small_model()
    mean = torch.zeros(256, 256)
    for _ in steps():
        outputs, _ = update(model, optimizer, *batch())
        features = torch.relu(model[0](batch()[0]))
        mean = 0.9 * mean + 0.1 * (features if leaky else features.detach())


@pair(line=["context.result = result", "result = inputs.exp()"], holder=["result"])
def function_context(leaky):
    import torch

    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(context, inputs):
            result = inputs.exp()
            if leaky:
                context.result = result
            else:
                context.save_for_backward(result)
            return result

        @staticmethod
        def backward(context, gradient):
            return gradient * (context.result if leaky else context.saved_tensors[0])

    gc.disable()
    weight = torch.zeros(384, 256, requires_grad=True)
    for _ in steps():
        Exp.apply(weight * 0.1).mean().backward()
        weight.grad = None


@pair(line=["pending.append", "pool.submit"], holder=["pending"])
def futures_kept(leaky):
    model, optimizer = small_model()
    pool, pending = concurrent.futures.ThreadPoolExecutor(1), []
    for _ in steps():
        inputs, labels = batch(384)
        update(model, optimizer, inputs, labels)
        pending.append(pool.submit(lambda kept=inputs: kept.sqrt()))
        if not leaky:
            pending = [one for one in pending if not one.done()]


@pair(line=["self.keys = torch.cat"], holder=["keys"])
def key_cache(leaky):
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(0, 256))

        def forward(self, inputs):
            self.keys = torch.cat([self.keys, inputs.detach()])[0 if leaky else -512:].clone()
            return inputs

    model, optimizer = small_model()
    attention = Attention()
    for _ in steps():
        inputs, labels = batch()
        update(model, optimizer, attention(inputs), labels)


@pair(line=["best.append"], holder=["best"])
def best_outputs(leaky):
    model, optimizer = small_model()
    best = []
    for _ in steps():
        inputs, labels = batch()
        best.append(model(inputs)[0] if leaky else model(inputs)[0].tolist())
        update(model, optimizer, inputs, labels)


@pair(line=["mmap.mmap(", "maps.append"], holder=["maps"], native=True)
def open_maps(leaky):
    model, optimizer = small_model()
    maps = []
    for _ in steps():
        update(model, optimizer, *batch())
        area = mmap.mmap(-1, 400_000)
        area.write(b"x" * 400_000)
        if leaky:
            maps.append(area)


class Session:
    pass


@pair(line=["caches[session] ="], holder=["caches"])
def weak_keys(leaky):
    model, optimizer = small_model()
    caches = weakref.WeakKeyDictionary()
    for _ in steps():
        inputs, labels = batch(384)
        update(model, optimizer, inputs, labels)
        session = Session()
        caches[session] = (inputs, session) if leaky else (inputs, None)


class Collecting(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pair(line=["self.records.append", "log.warning"], holder=["records"])
def kept_records(leaky):
    log, handler = logging.getLogger("evaluation"), Collecting()
    log.propagate = False
    log.addHandler(handler)
    for step in steps():
        log.warning("scores %s", list(range(step * 10_000, step * 10_000 + 10_000)))
        if not leaky:
            handler.records.clear()


@pair(line=["table = numpy.concatenate"], holder=["table"])
def growing_table(leaky):
    import numpy

    table = numpy.zeros((0, 100))
    for _ in steps():
        table = numpy.concatenate([table, numpy.random.rand(400, 100)])
        if not leaky:
            table = table[-800:].copy()


def _rows(leaky):
    rows = []
    while True:
        rows.append({"scores": [float(at) for at in range(8000)], "step": len(rows)})
        if not leaky:
            rows.clear()
        yield len(rows)


@pair(line=["rows.append"], holder=["rows"])
def rows_in_generator(leaky):
    rows = _rows(leaky)
    for _ in steps():
        next(rows)


@pair(line=["tasks.add", "asyncio.ensure_future", "create_task"], holder=["tasks", "_scheduled", "_ready"])
def tasks_kept(leaky):
    import asyncio

    async def wait(payload, stop):
        await stop.wait()
        return payload

    async def train():
        stop, tasks = asyncio.Event(), set()
        for step in steps():
            task = asyncio.ensure_future(wait(bytearray(b"x") * 300_000, stop))
            tasks.add(task)
            await asyncio.sleep(0)
            if not leaky:
                stop.set()
                await task
                tasks.clear()

    asyncio.run(train())


@pair(line=["frozen.append"], holder=["frozen"], native=True, hidden=True)
def frozen_objects(leaky):
    frozen = []
    for step in steps():
        frozen.append([float(at) for at in range(10_000)])
        gc.freeze()
        if not leaky:
            frozen.clear()


@pair(line=["thread.start", "threading.Thread", "stop.wait"], holder=["threads", "_active", "_limbo", "stop"], threads=True)
def threads_kept(leaky):
    stop = threading.Event()

    def work():
        scratch = bytearray(b"x") * 300_000
        if leaky:
            stop.wait()
        return len(scratch)

    for _ in steps():
        thread = threading.Thread(target=work, daemon=True)
        thread.start()


if __name__ == "__main__":
    main()
