"""Writes fake_quantise_per_token.json: each row on a grid from its own values, by PyTorch, with gradients.

pip install torch; python tests/reference/fake_quantise_per_token.py
"""
import json
import pathlib

import torch

torch.manual_seed(11)
values = torch.randn(6, 11) * torch.tensor([[0.01], [1.0], [30.0], [1.0], [1.0], [1.0]])
values[3] = values[3].abs() + 0.2  # zero is below all of them
values[4] = 0.0
values[5, 7] = 250.0  # an outlier, which costs its own row alone
upstream = torch.randn(6, 11)


def grid(row, scheme, bits):
    low, high = min(row.min().item(), 0.0), max(row.max().item(), 0.0)
    if scheme == "symmetric":
        most = 2 ** (bits - 1) - 1
        return max(max(-low, high) / most, 1e-12), 0, -most, most
    levels = 2**bits - 1
    scale = max((high - low) / levels, 1e-12)
    return scale, round(-low / scale), 0, levels


cases = []
for bits in (2, 4, 8):
    for scheme in ("symmetric", "asymmetric"):
        grids = [grid(row, scheme, bits) for row in values]
        x = values.clone().requires_grad_()
        y = torch.fake_quantize_per_channel_affine(
            x, torch.tensor([one[0] for one in grids]), torch.tensor([one[1] for one in grids], dtype=torch.int32),
            0, grids[0][2], grids[0][3])
        (y * upstream).sum().backward()
        cases.append({"scheme": scheme, "bits": bits, "values": y.flatten().tolist(), "gradient": x.grad.flatten().tolist()})

place = pathlib.Path(__file__).with_suffix(".json")
place.write_text(json.dumps({"input": values.tolist(), "upstream": upstream.tolist(), "cases": cases}) + "\n")
