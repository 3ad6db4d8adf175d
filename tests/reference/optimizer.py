"""Writes optimizer.json: steps of PyTorch's AdamW and SGD whose weight decay is for matrices and kernels alone, or for all.

pip install torch; python tests/reference/optimizer.py
"""
import json
import pathlib

import torch

torch.manual_seed(11)
SHAPES = {"vector": (3,), "matrix": (2, 3), "kernel": (2, 1, 2, 2)}
parameters = {name: torch.randn(shape) for name, shape in SHAPES.items()}
gradients = [{name: torch.randn(shape) for name, shape in SHAPES.items()} for _ in range(4)]


def groups(own, decay, weight_decay):
    decays = [one for one in own.values() if decay == "all" or one.dim() >= 2]
    rest = [one for one in own.values() if not (decay == "all" or one.dim() >= 2)]
    return [{"params": decays, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def run(kind, decay, nesterov=False):
    own = {name: torch.nn.Parameter(value.clone()) for name, value in parameters.items()}
    rate, weight_decay = 0.05, 0.3
    both = groups(own, decay, weight_decay)
    if kind == "adamw":
        optimizer = torch.optim.AdamW(both, lr=rate)
    else:
        optimizer = torch.optim.SGD(both, lr=rate, momentum=0.9, nesterov=nesterov)
    after = []
    for step in gradients:
        for name, one in own.items():
            one.grad = step[name].clone()
        optimizer.step()
        after.append({name: one.tolist() for name, one in own.items()})
    return {"optimizer": kind, "decay": decay, "nesterov": nesterov, "learning_rate": rate,
            "weight_decay": weight_decay, "after": after}


cases = [run(kind, decay, nesterov) for kind, nesterov in (("adamw", False), ("sgd", False), ("sgd", True))
         for decay in ("matrices", "all")]
lists = lambda values: {name: value.tolist() for name, value in values.items()}
place = pathlib.Path(__file__).with_suffix(".json")
place.write_text(json.dumps({
    "torch": torch.__version__, "parameters": lists(parameters), "gradients": [lists(step) for step in gradients],
    "cases": cases}) + "\n")
