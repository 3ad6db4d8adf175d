"""Pairs that the agent may be tuned on."""

import collections
import functools
import logging
import logging.handlers
import queue
import threading

from pair import batch, main, pair, small_model, steps, update


@pair(line=['state["history"].append', '"predictions": outputs'], holder=["history"])
def validation_history(leaky):
    import torch

    model, optimizer = small_model()
    state = {"history": []}
    for step in steps():
        update(model, optimizer, *batch())
        if step % 25 == 0:
            inputs, labels = batch(16384)
            with torch.no_grad():
                outputs = model[:4](inputs)
            if leaky:
                state["history"].append({"step": step, "predictions": outputs})


@pair(line=["losses.append", "loss = functional", "total = functional"], holder=["losses"])
def losses_with_graph(leaky):
    from torch.nn import functional

    model, optimizer = small_model()
    losses = []
    for _ in steps():
        inputs, labels = batch()
        loss = functional.cross_entropy(model(inputs), labels)
        losses.append(loss if leaky else loss.item())
        optimizer.zero_grad()
        functional.mse_loss(model(inputs), inputs[:, :10]).backward()
        optimizer.step()


class Recorder:
    def __init__(self, module):
        self.activations = []
        module.register_forward_hook(self.keep)

    def keep(self, module, inputs, output):
        self.activations.append(output.detach())


@pair(line=["self.activations.append"], holder=["activations"])
def activation_recorder(leaky):
    model, optimizer = small_model()
    recorder = Recorder(model[1])
    for _ in steps():
        update(model, optimizer, *batch())
        if not leaky:
            recorder.activations.clear()


def _dataset(leaky):
    import torch
    from torch.utils.data import Dataset

    class Decoded(Dataset):
        def __init__(self):
            self.decoded = {}

        def __len__(self):
            return 10_000

        def __getitem__(self, item):
            if item in self.decoded:
                return self.decoded[item]
            sample = torch.randn(32, 256)
            if leaky:
                self.decoded[item] = sample
            return sample

    return Decoded()


@pair(line=["self.decoded[item] = sample", "sample = torch.randn"], holder=["decoded"])
def dataset_cache(leaky):
    from torch.utils.data import DataLoader

    model, optimizer = small_model()
    loader = iter(DataLoader(_dataset(leaky), batch_size=8, num_workers=2, multiprocessing_context="fork"))
    for _ in steps():
        inputs = next(loader).flatten(0, 1)
        update(model, optimizer, inputs, inputs[:, :10].argmax(1))


@pair(line=["add_param_group", "nn.Parameter("], holder=["param_groups", "state", "new_head"])
def parameter_groups(leaky):
    import torch
    from torch import nn

    model, optimizer = small_model()
    for step in steps():
        if leaky:
            new_head = nn.Parameter(torch.randn(256, 256))
            optimizer.add_param_group({"params": [new_head]})
        update(model, optimizer, *batch())


@pair(line=["buffer.append"], holder=["buffer"])
def replay_buffer(leaky):
    model, optimizer = small_model()
    buffer = []
    for step in steps():
        inputs, labels = batch(384)
        buffer.append((inputs, labels, step))
        if not leaky:
            del buffer[:-8]
        update(model, optimizer, inputs, labels)


@functools.lru_cache(maxsize=None)
def whitened(inputs):
    return (inputs - inputs.mean(0)) / inputs.std(0)


@pair(line=["lru_cache", "whitened(inputs)", "inputs.std(0)"], holder=["whitened"])
def cache_by_tensor(leaky):
    model, optimizer = small_model()
    for _ in steps():
        inputs, labels = batch()
        update(model, optimizer, whitened(inputs), labels)
        if not leaky:
            whitened.cache_clear()


@pair(line=["hidden = cell(", "hidden = torch.tanh"], holder=["hidden"])
def hidden_state(leaky):
    import torch
    from torch import nn

    torch.set_num_threads(1)
    cell, readout = nn.GRUCell(128, 256), nn.Linear(256, 1)
    hidden = torch.zeros(64, 256)
    for _ in steps():
        hidden = cell(torch.randn(64, 128), hidden)
        readout(hidden).mean()
        if not leaky:
            hidden = hidden.detach()


@pair(line=["create_graph=True", "penalty", "learner = "], holder=["grad", "learner"])
def gradient_penalty(leaky):
    for _ in steps():
        learner, _ = small_model()
        inputs, labels = batch(64)
        penalty = (learner(inputs) ** 2).mean()
        penalty.backward(create_graph=leaky)


@pair(line=["failures.append"], holder=["failures"])
def kept_failures(leaky):
    model, optimizer = small_model()
    failures = []

    def attempt(inputs):
        noise = inputs.clone()
        raise ValueError(noise.shape)

    for _ in steps():
        inputs, labels = batch(384)
        update(model, optimizer, inputs, labels)
        try:
            attempt(inputs)
        except ValueError as error:
            failures.append(error if leaky else str(error))


@pair(line=["bank = torch.cat"], holder=["bank"])
def memory_bank(leaky):
    import torch

    model, optimizer = small_model()
    bank = torch.zeros(0, 256)
    for _ in steps():
        inputs, labels = batch()
        update(model, optimizer, inputs, labels)
        bank = torch.cat([bank, inputs])
        if not leaky:
            bank = bank[-1024:].clone()


@pair(line=["hard.append", "hardest = "], holder=["hard"])
def views_kept(leaky):
    model, optimizer = small_model()
    hard = []
    for _ in steps():
        inputs, labels = batch(384)
        update(model, optimizer, inputs, labels)
        hardest = inputs[7]
        hard.append(hardest if leaky else hardest.clone())


@pair(line=["malloc("], native=True)
def native_blocks(leaky):
    import ctypes

    model, optimizer = small_model()
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.free.argtypes = [ctypes.c_void_p]
    for _ in steps():
        update(model, optimizer, *batch())
        block = library.malloc(400_000)
        ctypes.memset(ctypes.c_void_p(block), 1, 400_000)
        if not leaky:
            library.free(block)


class Bus:
    def __init__(self):
        self.handlers = []

    def on_step(self, handler):
        self.handlers.append(handler)


@pair(line=["self.handlers.append", "bus.on_step", "handlers.append(handler)"], holder=["handlers"])
def event_bus(leaky):
    model, optimizer = small_model()
    bus = Bus()
    for step in steps():
        inputs, labels = batch(384)
        bus.on_step(lambda: inputs.mean())
        outputs, loss = update(model, optimizer, inputs, labels)
        if not leaky:
            bus.handlers.clear()
        else:
            inputs = None
            bus.handlers[-1] = (lambda kept: lambda: kept.mean())(batch(384)[0])


@pair(line=["memory.buffer", "logger.info", "addHandler"], holder=["buffer", "handlers"])
def log_buffer(leaky):
    logger = logging.getLogger("train")
    logger.propagate = False
    logger.setLevel("INFO")
    memory = logging.handlers.MemoryHandler(10**9 if leaky else 20, flushLevel=1000, target=logging.NullHandler())
    logger.addHandler(memory)
    for step in steps():
        logger.info("batch %s", bytearray(b"x" * 300_000))


class Tracker:
    def __init__(self):
        self.stages = {"train": {"embeddings": []}}


@pair(line=['["embeddings"].append'], holder=["embeddings", "tracker"])
def numpy_embeddings(leaky):
    import numpy

    tracker = Tracker()
    for step in steps():
        tracker.stages["train"]["embeddings"].append(numpy.random.rand(200, 200))
        if not leaky:
            tracker.stages["train"]["embeddings"].clear()


class Pages:
    cache = {}

    @classmethod
    def load(cls, number):
        cls.cache[number] = bytearray(b"p") * 300_000
        return cls.cache[number]


@pair(line=["cls.cache[number] ="], holder=["cache"])
def class_attribute(leaky):
    for step in steps():
        Pages.load(step if leaky else step % 4)


@pair(line=["results.put"], holder=["results"])
def slow_writer(leaky):
    results = queue.Queue()

    def write():
        while True:
            item = results.get()
            threading.Event().wait(0.5 if leaky else 0.001)
            del item

    threading.Thread(target=write, daemon=True).start()
    for step in steps():
        results.put(bytearray(b"x") * 400_000)


@pair(line=["node.parent = node", "Node()", "node.rows"], holder=["collector", "node"])
def cycles_without_collector(leaky):
    import gc

    class Node:
        pass

    gc.disable()
    for step in steps():
        node = Node()
        node.rows = [str(at) * 20 for at in range(3000)]
        if leaky:
            node.parent = node


@pair(line=["itertools.tee", "next(ahead)", "for _ in range"], holder=["behind", "ahead", "tee"])
def tee_of_batches(leaky):
    import itertools

    ahead, behind = itertools.tee(bytearray(b"x") * 300_000 for _ in range(10**6))
    for step in steps():
        next(ahead)
        if not leaky:
            next(behind)


if __name__ == "__main__":
    main()
