"""Linear classifier on a pretrained backbone of xrun's image classification in PyTorch, with the weights of a checkpoint.

    from model import load
    network, config = load("DIRECTORY")         # model.safetensors and config.json
    logits = network(images)                    # normalised images [n, 3, side, side] to [n, classes]

    python model.py FILES                       # class and probability of each image

Images are 8-bit RGB, scaled to fit a square of config["image_size"] pixels and padded with config["padding"]; then
`(pixel - mean) / deviation` with config["mean"] and config["deviation"] of red, green and blue. `preprocess` needs Pillow, which
scales a little differently from xrun. Batch normalisation is part of the convolutions.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional


class Convolution(nn.Module):
    def __init__(self, config, about):
        super().__init__()
        (inputs, outputs), self.about, self.same = about["channels"], about, config["same_padding"]
        self.maximum = config["activation_max"] or float("inf")
        self.groups = inputs if about["depthwise"] else 1
        self.weight = nn.Parameter(torch.empty(outputs, inputs // self.groups, about["size"], about["size"]))
        self.bias = nn.Parameter(torch.empty(outputs))

    def padding(self, length):
        size, stride = self.about["size"], self.about["stride"]
        if not self.same:
            return [size // 2, size // 2]
        all = max((-(-length // stride) - 1) * stride + size - length, 0)
        return [all // 2, all - all // 2]

    def forward(self, value):
        value = functional.pad(value, self.padding(value.shape[3]) + self.padding(value.shape[2]))
        value = functional.conv2d(value, self.weight, self.bias, self.about["stride"], groups=self.groups)
        return value.clamp(0, self.maximum) if self.about["rectified"] else value


class Unit(nn.Module):
    def __init__(self, config, about):
        super().__init__()
        self.about, self.maximum = about, config["activation_max"] or float("inf")
        shortcut = [about["shortcut"]] if about["shortcut"] else []
        self.layers = nn.ModuleList(Convolution(config, layer) for layer in about["layers"] + shortcut)

    def forward(self, input):
        value = input
        for layer in self.layers[: len(self.about["layers"])]:
            value = layer(value)
        if self.about["residual"]:
            value = value + (self.layers[-1](input) if self.about["shortcut"] else input)
        if self.about["rectified"]:
            value = value.clamp(0, self.maximum)
        return functional.max_pool2d(value, 3, 2, 1) if self.about["pooled"] else value


class Classifier(nn.Module):
    def __init__(self, config, classes):
        super().__init__()
        self.units = nn.ModuleList(Unit(config, unit) for unit in config["units"])
        self.output = nn.Linear(config["units"][-1]["layers"][-1]["channels"][1], classes)

    def forward(self, images):
        value = images
        for unit in self.units:
            value = unit(value)
        return self.output(value.mean(dim=(2, 3)))


def load(directory="."):
    """Network in evaluation mode, and its configuration."""
    directory = Path(directory)
    config = json.loads((directory / "config.json").read_text())
    tensors = load_file(directory / "model.safetensors")
    tensors = {name.removeprefix("backbone."): tensor for name, tensor in tensors.items()}
    tensors["output.weight"] = tensors["output.weight"].T.contiguous()
    network = Classifier(config, tensors["output.bias"].shape[0])
    network.load_state_dict(tensors)
    return network.eval(), config
