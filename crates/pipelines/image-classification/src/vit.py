"""Linear classifier on a pretrained vision transformer of xrun's image classification in PyTorch, with the weights of a checkpoint.

    from model import load
    network, config = load("DIRECTORY")         # model.safetensors and config.json
    logits = network(images)                    # normalised images [n, 3, side, side] to [n, classes]

    python model.py FILES                       # class and probability of each image

Images are 8-bit RGB, scaled to fit a square of config["image_size"] pixels and padded with config["padding"]; then
`(pixel - mean) / deviation` with config["mean"] and config["deviation"] of red, green and blue. `preprocess` needs Pillow, which
scales a little differently from xrun. The class token contains its position, and LayerScale is part of the layers before it.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.heads = config["width"], config["heads"]
        self.layernorm_before, self.layernorm_after = (nn.LayerNorm(width, config["epsilon"]) for _ in range(2))
        names = ("query", "key", "value", "output")
        self.attention = nn.ModuleDict({name: nn.Linear(width, width) for name in names})
        self.intermediate, self.output = nn.Linear(width, config["hidden"]), nn.Linear(config["hidden"], width)

    def forward(self, value):
        inner = self.layernorm_before(value)
        parts = (self.attention[name](inner).unflatten(2, (self.heads, -1)) for name in ("query", "key", "value"))
        attended = functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in parts))
        value = value + self.attention["output"](attended.transpose(1, 2).flatten(2))
        return value + self.output(functional.gelu(self.intermediate(self.layernorm_after(value))))


class Classifier(nn.Module):
    def __init__(self, config, classes):
        super().__init__()
        width, patch, self.mean = config["width"], config["patch_size"], config["mean_of_patches"]
        self.class_token = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, config["cells"] ** 2, width))
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.layer = nn.ModuleList(Block(config) for _ in range(config["blocks"]))
        self.layernorm = nn.LayerNorm(width, config["epsilon"])
        self.output = nn.Linear(width * (2 if self.mean else 1), classes)

    def forward(self, images):
        patches = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        value = torch.cat([self.class_token.expand(len(images), -1, -1), patches], 1)
        for block in self.layer:
            value = block(value)
        value = self.layernorm(value)
        return self.output(torch.cat([value[:, 0], value[:, 1:].mean(1)], 1) if self.mean else value[:, 0])


def load(directory="."):
    """Network in evaluation mode, and its configuration."""
    directory = Path(directory)
    config = json.loads((directory / "config.json").read_text())
    tensors = {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        name = name.removeprefix("backbone.transformer.").removeprefix("embeddings.")
        name = name.replace(".gamma", ".weight").replace(".beta", ".bias")
        tensors[name] = tensor.T.contiguous() if tensor.dim() == 2 else tensor
    network = Classifier(config, tensors["output.bias"].shape[0])
    network.load_state_dict(tensors)
    return network.eval(), config
