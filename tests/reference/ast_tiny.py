"""Writes ast_tiny.safetensors as Hugging Face does, and ast_tiny.json: a spectrogram, and what the transformer makes of it.

pip install torch transformers safetensors; python tests/reference/ast_tiny.py
"""
import json
import pathlib
import shutil
import tempfile

import torch
import transformers

torch.manual_seed(5)
config = transformers.ASTConfig(
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    patch_size=4,
    frequency_stride=3,
    time_stride=3,
    max_length=14,
    num_mel_bins=10,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
model = transformers.ASTModel(config).eval()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
place = pathlib.Path(__file__).parent
with tempfile.TemporaryDirectory() as directory:
    model.save_pretrained(directory, safe_serialization=True)
    shutil.copy(pathlib.Path(directory) / "model.safetensors", place / "ast_tiny.safetensors")
spectrograms = torch.randn(2, 14, 10)
with torch.no_grad():
    hidden = model(spectrograms).last_hidden_state
result = {
    "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    "spectrograms": [round(x, 6) for x in spectrograms.flatten().tolist()],
    "shape": list(hidden.shape),
    "last_hidden_state": [round(x, 6) for x in hidden.flatten().tolist()],
}
(place / "ast_tiny.json").write_text(json.dumps(result) + "\n")
