"""Writes small backbones with the tensor names of published files, and backbones.json: their feature maps.

The forward passes are written here from the papers in plain operations of PyTorch, with batch normalisation as it is in the files:
nothing is folded. `padding` of EfficientNet-Lite is TensorFlow's "SAME".

pip install torch safetensors; python tests/reference/backbones.py
The files here: Python 3.11, torch 2.15.0, safetensors 0.8.0.
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from torch.nn import functional

torch.manual_seed(11)
PLACE = pathlib.Path(__file__).parent
SIDE, IMAGES = 37, 2
numbers = torch.arange(IMAGES * SIDE * SIDE * 3)
# The 8-bit pixels [n, side, side, 3] of the test, too.
pixels = ((numbers * numbers * 7 + numbers * 13) % 251).view(IMAGES, SIDE, SIDE, 3).float()


def normalised(mean, deviation):
    return ((pixels - torch.tensor(mean)) / torch.tensor(deviation)).permute(0, 3, 1, 2)


class File(dict):
    """Tensors by name; those of a layer are drawn when it is used for the first time."""

    def __init__(self, epsilon):
        super().__init__()
        self.epsilon = epsilon

    def convolution(self, value, kernel, norm, outputs, size, stride=1, depthwise=False, same=False):
        inputs = value.shape[1]
        groups = inputs if depthwise else 1
        shape = (outputs, inputs // groups, size, size)
        self[f"{kernel}.weight"] = (torch.randn(shape) * (2 / (shape[1] * size * size)) ** 0.5).half().float()
        self[f"{norm}.weight"] = 1 + 0.2 * torch.randn(outputs)
        self[f"{norm}.bias"] = 0.2 * torch.randn(outputs)
        self[f"{norm}.running_mean"] = 0.3 * torch.randn(outputs)
        self[f"{norm}.running_var"] = 0.5 + torch.rand(outputs)
        if len(self) == 5:  # as for every layer in the published files
            self[f"{norm}.num_batches_tracked"] = torch.tensor(7)
        if same:
            rows, columns = (max((-(-n // stride) - 1) * stride + size - n, 0) for n in value.shape[2:])
            value = functional.pad(value, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        padding = 0 if same else size // 2
        value = functional.conv2d(value, self[f"{kernel}.weight"], None, stride, padding, groups=groups)
        mean, variance = self[f"{norm}.running_mean"], self[f"{norm}.running_var"]
        return functional.batch_norm(value, mean, variance, self[f"{norm}.weight"], self[f"{norm}.bias"], eps=self.epsilon)


def resnet(stem, layer, shortcut, widths, sizes, blocks):
    file = File(1e-5)
    value = normalised([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
    value = functional.max_pool2d(functional.relu(file.convolution(value, *stem, 2, 7, 2)), 3, 2, 1)
    for stage, outputs in enumerate(widths):
        for block in range(blocks[stage]):
            stride = 2 if stage and not block else 1
            rest = value
            for number, size in enumerate(sizes):
                last = number + 1 == len(sizes)
                width = outputs if last or len(sizes) == 2 else max(outputs // 4, 1)
                # The stride is in the first convolution of a basic block, and in the middle of a bottleneck.
                here = stride if number == len(sizes) // 2 - (len(sizes) == 2) else 1
                rest = file.convolution(rest, *layer(stage, block, number), width, size, here)
                rest = rest if last else functional.relu(rest)
            if stride > 1 or value.shape[1] != outputs:
                value = file.convolution(value, *shortcut(stage, block), outputs, 1, stride)
            value = functional.relu(value + rest)
    return file, value


def efficientnet_lite(widths):
    file = File(1e-3)
    value = normalised([127.0] * 3, [128.0] * 3)
    value = functional.relu6(file.convolution(value, "_conv_stem", "_bn0", 2, 3, 2, same=True))
    block = 0
    # Repeats, kernel, stride and expansion of https://github.com/tensorflow/tpu, efficientnet/lite.
    stages = [(1, 3, 1, 1), (2, 3, 2, 6), (2, 5, 2, 6), (3, 3, 2, 6), (3, 5, 1, 6), (4, 5, 2, 6), (1, 3, 1, 6)]
    for outputs, (repeats, size, stride, expansion) in zip(widths, stages):
        for repeat in range(repeats):
            before, name = value, f"_blocks.{block}"
            inputs, step = value.shape[1], 1 if repeat else stride
            if expansion > 1:
                value = functional.relu6(file.convolution(value, f"{name}._expand_conv", f"{name}._bn0", inputs * expansion, 1))
            wide = value.shape[1]
            value = file.convolution(value, f"{name}._depthwise_conv", f"{name}._bn1", wide, size, step, True, True)
            value = functional.relu6(value)
            value = file.convolution(value, f"{name}._project_conv", f"{name}._bn2", outputs, 1)
            if step == 1 and inputs == outputs:
                value = value + before
            block += 1
    return file, functional.relu6(file.convolution(value, "_conv_head", "_bn1", 8, 1))


torchvision = resnet(
    ("conv1", "bn1"),
    lambda stage, block, number: (f"layer{stage + 1}.{block}.conv{number + 1}", f"layer{stage + 1}.{block}.bn{number + 1}"),
    lambda stage, block: (f"layer{stage + 1}.{block}.downsample.0", f"layer{stage + 1}.{block}.downsample.1"),
    [2, 3, 3, 6], [3, 3], [1, 1, 1, 1],
)
place = "resnet.encoder.stages.{}.layers.{}"
hugging_face = resnet(
    ("resnet.embedder.embedder.convolution", "resnet.embedder.embedder.normalization"),
    lambda stage, block, number: (
        f"{place.format(stage, block)}.layer.{number}.convolution",
        f"{place.format(stage, block)}.layer.{number}.normalization",
    ),
    lambda stage, block: (
        f"{place.format(stage, block)}.shortcut.convolution", f"{place.format(stage, block)}.shortcut.normalization"
    ),
    [4, 4, 8, 8], [1, 3, 1], [1, 2, 1, 1],
)
lite = efficientnet_lite([2, 2, 3, 3, 3, 3, 4])
torchvision[0]["fc.weight"], torchvision[0]["fc.bias"] = torch.randn(3, 6), torch.randn(3)
hugging_face[0]["classifier.1.weight"] = torch.randn(3, 8)
lite[0]["_fc.weight"] = torch.randn(3, 8)
torch.save({"epoch": 3, "state_dict": dict(torchvision[0])}, PLACE / "resnet_tiny.pth")
save_file(dict(hugging_face[0]), PLACE / "resnet_tiny.safetensors")
# As the published file: from before PyTorch 1.6.
kernels = {name: tensor.half() if tensor.dim() == 4 else tensor for name, tensor in lite[0].items()}
torch.save(kernels, PLACE / "efficientnet_lite_tiny.pth", _use_new_zipfile_serialization=False)
found = {
    name: {"shape": list(features.shape), "features": [round(float(x), 6) for x in features.flatten()]}
    for name, (_, features) in
    {"resnet_tiny.pth": torchvision, "resnet_tiny.safetensors": hugging_face, "efficientnet_lite_tiny.pth": lite}.items()
}
(PLACE / "backbones.json").write_text(json.dumps(found) + "\n")
