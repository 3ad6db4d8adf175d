"""GPT-2 of xrun in PyTorch, with the weights of a checkpoint.

    from model import load
    network, config = load("DIRECTORY")         # model.safetensors and config.json
    logits = network(tokens)                    # token ids [batch, length] to [batch, length, vocabulary]

The forward pass is in 32 bits: weights plus the LoRA of config["lora_index"] (the widest precision). Quantisation of weights,
activations, keys and values is not part of it; `export_merged = true` in the experiment writes weights on the grid of each
precision, in the format of Hugging Face's transformers.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional


class Projection(nn.Module):
    """Linear layer with the matrix [inputs, outputs]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, value):
        return value @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Projection(width, 3 * width)
        self.c_proj = Projection(width, width)

    def forward(self, value):
        batch, length, width = value.shape
        by_head = (batch, length, self.heads, width // self.heads)
        query, key, value = (part.view(by_head).transpose(1, 2) for part in self.c_attn(value).split(width, dim=2))
        value = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(value.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Projection(width, 4 * width)
        self.c_proj = Projection(4 * width, width)

    def forward(self, value):
        return self.c_proj(functional.gelu(self.c_fc(value), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-5)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width, eps=1e-5)
        self.mlp = Mlp(width)

    def forward(self, value):
        value = value + self.attn(self.ln_1(value))
        return value + self.mlp(self.ln_2(value))


class GPT2(nn.Module):
    def __init__(self, vocabulary, context, width, layers, heads):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width, eps=1e-5)

    def forward(self, tokens):
        value = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            value = block(value)
        return self.ln_f(value) @ self.wte.weight.T


def load(directory="."):
    """Network in evaluation mode, with LoRA merged into its weights, and its configuration."""
    directory = Path(directory)
    config = json.loads((directory / "config.json").read_text())
    stored = load_file(directory / "model.safetensors")
    tensors = {name: tensor for name, tensor in stored.items() if ".lora." not in name and ".scale_logarithms." not in name}
    index = config["lora_index"]
    for name in tensors:
        lora = name.removesuffix("weight") + f"lora.{index}"
        if name.endswith(".weight") and f"{lora}.a" in stored:
            tensors[name] = tensors[name] + config["lora_scale"] * stored[f"{lora}.a"] @ stored[f"{lora}.b"]
    (vocabulary, width), context = tensors["wte.weight"].shape, tensors["wpe.weight"].shape[0]
    layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("h."))
    network = GPT2(vocabulary, context, width, layers, config["heads"])
    network.load_state_dict(tensors)
    return network.eval(), config
