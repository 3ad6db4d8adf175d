"""Writes gpt2_tiny.safetensors as Hugging Face does, and gpt2_tiny.json: tokens, and the logits that PyTorch gives.

pip install torch transformers safetensors; python tests/reference/gpt2_tiny.py
"""
import json
import pathlib
import shutil
import tempfile

import torch
import transformers

torch.manual_seed(5)
config = transformers.GPT2Config(
    vocab_size=11, n_positions=8, n_embd=8, n_layer=2, n_head=2, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0
)
model = transformers.GPT2LMHeadModel(config).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
place = pathlib.Path(__file__).parent
with tempfile.TemporaryDirectory() as directory:
    model.save_pretrained(directory, safe_serialization=True)
    shutil.copy(pathlib.Path(directory) / "model.safetensors", place / "gpt2_tiny.safetensors")
tokens = torch.tensor([[1, 5, 9, 2, 2, 0, 10, 7], [3, 3, 4, 8, 6, 1, 0, 5]])
targets = torch.tensor([[5, 9, 2, 2, 0, 10, 7, 4], [3, 4, 8, 6, 1, 0, 5, 9]])
logits = model(tokens).logits
loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
loss.backward()
transformer = model.transformer
result = {
    "tokens": tokens.tolist(),
    "targets": targets.tolist(),
    "logits": [[round(x, 6) for x in row] for row in logits.flatten(0, 1).tolist()],
    "loss": loss.item(),
    "gradients": {
        "h.0.attn.c_attn.bias": transformer.h[0].attn.c_attn.bias.grad.tolist(),
        "h.1.mlp.c_fc.bias": transformer.h[1].mlp.c_fc.bias.grad.tolist(),
        "ln_f.weight": transformer.ln_f.weight.grad.tolist(),
    },
}
(place / "gpt2_tiny.json").write_text(json.dumps(result) + "\n")
