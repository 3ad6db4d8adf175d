"""Writes merged_gpt2.json: what a LoRA merged at 4 bits is by PyTorch, transformers and PEFT, on gpt2_tiny.safetensors.

pip install torch transformers peft safetensors; python tests/reference/merged_gpt2.py
"""
import json
import math
import pathlib
import shutil
import tempfile

import peft
import safetensors.torch
import torch
import transformers

BITS, RANK, ALPHA = 4, 2, 16.0
LAYERS = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]
place = pathlib.Path(__file__).parent
config = transformers.GPT2Config(
    vocab_size=11, n_positions=8, n_embd=8, n_layer=2, n_head=2, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0
)


def base():
    with tempfile.TemporaryDirectory() as directory:
        config.save_pretrained(directory)
        shutil.copy(place / "gpt2_tiny.safetensors", pathlib.Path(directory) / "model.safetensors")
        return transformers.GPT2LMHeadModel.from_pretrained(directory).eval()


def grid(matrix):
    """Symmetric, a scale for each column."""
    most = 2 ** (BITS - 1) - 1
    scale = matrix.abs().amax(0) / most
    zero = torch.zeros_like(scale, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(matrix, scale, zero, 1, -most, most), scale


def drawn(rows, columns, factor, function, phase):
    return torch.tensor([[factor * function(phase + 0.7 * i + 1.3 * j) for j in range(columns)] for i in range(rows)])


def linear(model, block, name):
    module = model.transformer.h[block]
    for part in name.split("."):
        module = getattr(module, part)
    return module


tokens = torch.tensor(json.loads((place / "gpt2_tiny.json").read_text())["tokens"])
merged, on_grid, scales, lora = base(), base(), {}, {}
with torch.no_grad():
    for block in range(2):
        for number, name in enumerate(LAYERS):
            weight = linear(merged, block, name).weight  # Conv1D: inputs by outputs
            a = drawn(weight.shape[0], RANK, 0.5, math.sin, 1.0 + number + 4 * block)
            b = drawn(RANK, weight.shape[1], 0.05, math.cos, 2.0 + number + 4 * block)
            quantised, scales[f"h.{block}.{name}.weight"] = grid(weight)
            a, b = grid(a)[0], grid(b)[0]
            lora[f"transformer.h.{block}.{name}"] = (a, b)
            linear(on_grid, block, name).weight.copy_(quantised)
            weight.copy_(quantised + ALPHA / RANK * a @ b)
    logits = merged(tokens).logits
    adapted = peft.get_peft_model(on_grid, peft.LoraConfig(
        r=RANK, lora_alpha=ALPHA, target_modules=LAYERS, fan_in_fan_out=True, task_type="CAUSAL_LM")).eval()
    for name, (a, b) in lora.items():
        module = adapted.base_model.model.get_submodule(name)
        module.lora_A["default"].weight.copy_(a.T)
        module.lora_B["default"].weight.copy_(b.T)
    assert torch.allclose(adapted(tokens).logits, logits, atol=1e-4), "PEFT adds what is merged"
with tempfile.TemporaryDirectory() as directory:
    adapted.save_pretrained(directory)
    adapter = safetensors.torch.load_file(pathlib.Path(directory) / "adapter_model.safetensors")
    adapter_config = json.loads((pathlib.Path(directory) / "adapter_config.json").read_text())
known = config.to_dict()
numbers = lambda tensor: [round(value, 6) for value in tensor.flatten().tolist()]
result = {
    "logits": numbers(logits),
    "scales": {name: numbers(scale) for name, scale in scales.items()},
    "adapter": {name: {"shape": list(tensor.shape), "values": numbers(tensor)} for name, tensor in adapter.items()},
    "adapter_config": {name: adapter_config[name] for name in
                       ("peft_type", "task_type", "r", "lora_alpha", "fan_in_fan_out", "bias")},
    "config": {name: known[name] for name in
               ("model_type", "vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "activation_function",
                "layer_norm_epsilon", "tie_word_embeddings", "attn_pdrop", "embd_pdrop", "resid_pdrop")},
}
(place / "merged_gpt2.json").write_text(json.dumps(result) + "\n")
