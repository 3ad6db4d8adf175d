"""Writes small backbones with the tensor names of published files, and backbones.json: their feature maps.

The forward passes are written here from the papers in plain operations of PyTorch, with batch normalisation as it is in the files:
nothing is folded. `padding` of EfficientNet-Lite is TensorFlow's "SAME". The vision transformers (that of ViT is the file of
vision_language.py) are for images of 16 pixels, and see 24: their positions are interpolated.

pip install torch safetensors; python tests/reference/backbones.py
With an argument the transformers' features are compared with those of Hugging Face's classes: pip install transformers.
The files here: Python 3.11, torch 2.15.0, safetensors 0.8.0, transformers 5.24.0.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

torch.manual_seed(11)
PLACE = pathlib.Path(__file__).parent
SIDE, IMAGES = 37, 2
numbers = torch.arange(IMAGES * SIDE * SIDE * 3)
# The 8-bit pixels [n, side, side, 3] of the test, too.
pixels = ((numbers * numbers * 7 + numbers * 13) % 251).view(IMAGES, SIDE, SIDE, 3).float()


def normalised(mean, deviation, side=SIDE):
    images = pixels.flatten()[: IMAGES * side * side * 3].view(IMAGES, side, side, 3)
    return ((images - torch.tensor(mean)) / torch.tensor(deviation)).permute(0, 3, 1, 2)


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


def transformer(file, images, norms, mlp, epsilon, scales=None, heads=2):
    """Tokens after the last normalisation, the class token first (Dosovitskiy et al. 2021)."""
    def linear(value, name):
        return value @ file[f"{name}.weight"].T + file[f"{name}.bias"]

    def norm(value, name):
        return functional.layer_norm(value, value.shape[2:], file[f"{name}.weight"], file[f"{name}.bias"], epsilon)

    kernel = file["embeddings.patch_embeddings.projection.weight"]
    patches = functional.conv2d(images, kernel, file["embeddings.patch_embeddings.projection.bias"], kernel.shape[2])
    positions, side = file["embeddings.position_embeddings"], patches.shape[2]
    square = int((positions.shape[1] - 1) ** 0.5)
    rest = positions[:, 1:].reshape(1, square, square, -1).permute(0, 3, 1, 2)
    rest = functional.interpolate(rest, (side, side), mode="bicubic", align_corners=False).flatten(2).transpose(1, 2)
    value = patches.flatten(2).transpose(1, 2) + rest
    value = torch.cat([(file["embeddings.cls_token"] + positions[:, :1]).expand(IMAGES, -1, -1), value], 1)
    for block in range(2):
        name = f"encoder.layer.{block}"
        inner = norm(value, f"{name}.{norms[0]}")
        parts = (linear(inner, f"{name}.attention.attention.{part}") for part in ("query", "key", "value"))
        query, key, content = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in parts)
        weights = (query @ key.transpose(2, 3) / query.shape[3] ** 0.5).softmax(3)
        attended = linear((weights @ content).transpose(1, 2).flatten(2), f"{name}.attention.output.dense")
        value = value + attended * (file[f"{name}.{scales[0]}.lambda1"] if scales else 1)
        inner = functional.gelu(linear(norm(value, f"{name}.{norms[1]}"), f"{name}.{mlp[0]}"))
        mixed = linear(inner, f"{name}.{mlp[1]}")
        value = value + mixed * (file[f"{name}.{scales[1]}.lambda1"] if scales else 1)
    return norm(value, "layernorm")


def dinov2(width=8, hidden=16, patch=4, square=4):
    file = {"embeddings.cls_token": (1, 1, width), "embeddings.mask_token": (1, width), "layernorm": width,
            "embeddings.position_embeddings": (1, square * square + 1, width),
            "embeddings.patch_embeddings.projection": (width, 3, patch, patch)}
    for name in ("encoder.layer.0", "encoder.layer.1"):
        for part in ("attention.query", "attention.key", "attention.value", "output.dense"):
            file[f"{name}.attention.{part}"] = (width, width)
        file |= {f"{name}.mlp.fc1": (hidden, width), f"{name}.mlp.fc2": (width, hidden), f"{name}.norm1": width}
        file |= {f"{name}.norm2": width, f"{name}.layer_scale1.lambda1": (width,), f"{name}.layer_scale2.lambda1": (width,)}
    tensors = {}
    for name, shape in file.items():
        if isinstance(shape, int):  # of normalisation
            tensors[f"{name}.weight"], tensors[f"{name}.bias"] = 1 + 0.1 * torch.randn(shape), 0.3 * torch.randn(shape)
        elif name.startswith("embeddings.patch") or name.split(".")[-1] in ("query", "key", "value", "dense", "fc1", "fc2"):
            tensors[f"{name}.weight"], tensors[f"{name}.bias"] = 0.3 * torch.randn(shape), 0.3 * torch.randn(shape[0])
        else:
            tensors[name] = 0.5 * torch.randn(shape)
    return tensors


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
images = {
    "vit_tiny.safetensors": normalised([127.5] * 3, [127.5] * 3, 24),
    "dinov2_tiny.bin": normalised([123.675, 116.28, 103.53], [58.395, 57.12, 57.375], 24),
}
files = {"vit_tiny.safetensors": load_file(PLACE / "vit_tiny.safetensors"), "dinov2_tiny.bin": dinov2()}
tokens = {
    "vit_tiny.safetensors": transformer(
        files["vit_tiny.safetensors"], images["vit_tiny.safetensors"], ["layernorm_before", "layernorm_after"],
        ["intermediate.dense", "output.dense"], 1e-12),
    "dinov2_tiny.bin": transformer(
        files["dinov2_tiny.bin"], images["dinov2_tiny.bin"], ["norm1", "norm2"], ["mlp.fc1", "mlp.fc2"], 1e-6,
        ["layer_scale1", "layer_scale2"]),
}
torch.save({f"dinov2.{name}": tensor for name, tensor in files["dinov2_tiny.bin"].items()}, PLACE / "dinov2_tiny.bin")
if len(sys.argv) > 1:
    import transformers

    shape = dict(image_size=16, patch_size=4, hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    vit = transformers.ViTModel(transformers.ViTConfig(**shape, intermediate_size=32), add_pooling_layer=False)
    dino = transformers.Dinov2Model(transformers.Dinov2Config(**shape, mlp_ratio=2))
    for name, model in (("vit_tiny.safetensors", vit), ("dinov2_tiny.bin", dino)):
        model = type(model).from_pretrained(None, config=model.config, state_dict=files[name]).eval()
        with torch.no_grad():
            known = model(images[name], **({"interpolate_pos_encoding": True} if "vit_" in name else {}))
        print(name, (known.last_hidden_state - tokens[name]).abs().max().item())
found = {
    name: {"shape": list(features.shape), "features": [round(float(x), 6) for x in features.flatten()]}
    for name, (_, features) in
    {"resnet_tiny.pth": torchvision, "resnet_tiny.safetensors": hugging_face, "efficientnet_lite_tiny.pth": lite}.items()
}
for name, value in tokens.items():
    pooled = [value[:, 0]] + ([value[:, 1:].mean(1)] if "dinov2" in name else [])
    found[name] = {
        "shape": [IMAGES, value.shape[2], 6, 6],
        "features": [round(float(x), 6) for x in value[:, 1:].transpose(1, 2).flatten()],
        "pooled": [round(float(x), 6) for x in torch.cat(pooled, 1).flatten()],
    }
(PLACE / "backbones.json").write_text(json.dumps(found) + "\n")
