"""ResNet of xrun's image classification in PyTorch, with the weights of a checkpoint.

    from model import load
    network, config = load("DIRECTORY")         # model.safetensors and config.json
    logits = network(images)                    # normalised images [n, 3, side, side] to [n, classes]

    python model.py FILES                       # class and probability of each image

Images are 8-bit RGB, scaled to fit a square of config["image_size"] pixels and padded with config["padding"]; then
`(pixel - config["mean"]) / config["deviation"]`. `preprocess` needs Pillow, which scales a little
differently from xrun.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn


class ConvBlock(nn.Module):
    """3 x 3 convolution without a bias, group normalisation, ReLU."""

    def __init__(self, inputs, outputs, stride, groups):
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, outputs, eps=1e-5)

    def forward(self, value):
        return torch.relu(self.norm(self.convolution(value)))


class Residual(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.first = ConvBlock(channels, channels, 1, groups)
        self.second = ConvBlock(channels, channels, 1, groups)

    def forward(self, value):
        return value + self.second(self.first(value))


class Stage(nn.Module):
    def __init__(self, inputs, outputs, stride, blocks, groups):
        super().__init__()
        self.first = ConvBlock(inputs, outputs, stride, groups)
        self.residual = nn.ModuleList(Residual(outputs, groups) for _ in range(blocks))

    def forward(self, value):
        value = self.first(value)
        for block in self.residual:
            value = block(value)
        return value


class ResNet(nn.Module):
    def __init__(self, channels, blocks, norm_groups, classes):
        super().__init__()
        inputs = [3, *channels[:-1]]
        self.stages = nn.ModuleList(
            Stage(before, after, 1 if number == 0 else 2, blocks, norm_groups)
            for number, (before, after) in enumerate(zip(inputs, channels))
        )
        self.output = nn.Linear(channels[-1], classes)

    def forward(self, images):
        value = images
        for stage in self.stages:
            value = stage(value)
        return self.output(value.mean(dim=(2, 3)))


def load(directory="."):
    """Network in evaluation mode, and its configuration."""
    directory = Path(directory)
    config = json.loads((directory / "config.json").read_text())
    tensors = {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        # Names of scale and shift, and the order of the linear layer's matrix.
        name = name.replace(".norm.gamma", ".norm.weight").replace(".norm.beta", ".norm.bias")
        tensors[name] = tensor.T.contiguous() if name == "output.weight" else tensor
    classes = tensors["output.bias"].shape[0]
    network = ResNet(config["channels"], config["blocks"], config["norm_groups"], classes)
    network.load_state_dict(tensors)
    return network.eval(), config
