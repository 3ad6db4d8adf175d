"""Writes fake_quantise.json: values and gradients of fake quantisation by PyTorch, and of LSQ by its own formulas.

pip install torch; python tests/reference/fake_quantise.py
"""
import json
import math
import pathlib

import torch

torch.manual_seed(3)
values = torch.randn(4, 3) * torch.tensor([0.5, 1.0, 3.0])
upstream = torch.randn(4, 3)
cases = []


def asymmetric(low, high, bits):
    low, high = min(low, 0.0), max(high, 0.0)
    levels = 2**bits - 1
    scale = (high - low) / levels
    return scale, round(-low / scale), 0, levels


def symmetric(low, high, bits):
    most = 2 ** (bits - 1) - 1
    return max(abs(low), abs(high)) / most, 0, -most, most


for bits in (2, 4, 8):
    for name, scheme in (("symmetric", symmetric), ("asymmetric", asymmetric)):
        # Narrower than the values, so that some are outside.
        low, high = -1.3, 1.7
        x = values.clone().requires_grad_()
        scale, zero, least, most = scheme(low, high, bits)
        y = torch.fake_quantize_per_tensor_affine(x, scale, zero, least, most)
        (y * upstream).sum().backward()
        cases.append({"scheme": name, "bits": bits, "low": [low], "high": [high],
                      "values": y.flatten().tolist(), "gradient": x.grad.flatten().tolist()})
        lows, highs = values.amin(0).tolist(), values.amax(0).tolist()
        every = [scheme(a, b, bits) for a, b in zip(lows, highs)]
        x = values.clone().requires_grad_()
        y = torch.fake_quantize_per_channel_affine(
            x, torch.tensor([one[0] for one in every]), torch.tensor([one[1] for one in every], dtype=torch.int32),
            1, every[0][2], every[0][3])
        (y * upstream).sum().backward()
        cases.append({"scheme": name, "bits": bits, "low": lows, "high": highs,
                      "values": y.flatten().tolist(), "gradient": x.grad.flatten().tolist()})

learned = []
for bits in (3, 8):
    for logarithm in (0.0, -0.7):
        most = 2 ** (bits - 1) - 1
        first = 2 * values.abs().mean().item() / math.sqrt(most)
        share = 1 / math.sqrt(values.numel() * most)
        # Esser et al. 2020, equations 1 to 5; the chain rule from the scale to its logarithm is autograd's.
        parameter = torch.tensor(logarithm, requires_grad=True)
        grown = first * parameter.exp()
        scale = grown.item()
        ratio = values / scale
        inside = ratio.abs() < most
        rounded = ratio.clamp(-most, most).round()
        slope = torch.where(inside, rounded - ratio, rounded)
        grown.backward((upstream * slope).sum() * share)
        learned.append({"bits": bits, "logarithm": logarithm, "scale": scale,
                        "values": (rounded * scale).flatten().tolist(),
                        "gradient": (upstream * inside).flatten().tolist(),
                        "logarithm_gradient": parameter.grad.item()})

logits, teacher = torch.randn(5, 7, requires_grad=True), torch.randn(5, 7)
targets = torch.tensor([0, 6, 3, 3, 1])
weights = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0])
mean = lambda rows: (rows * weights).sum() / weights.sum()
distillation = []
for share, temperature in ((0.75, 1.0), (0.75, 2.0), (1.0, 4.0)):
    logits.grad = None
    entropy = mean(torch.nn.functional.cross_entropy(logits, targets, reduction="none"))
    # Hinton et al. 2015: both at the temperature, times its square.
    kl = temperature**2 * mean(torch.nn.functional.kl_div(
        (logits / temperature).log_softmax(1), (teacher / temperature).log_softmax(1), reduction="none",
        log_target=True).sum(1))
    total = (1 - share) * entropy + share * kl
    total.backward()
    distillation.append({
        "share": share, "temperature": temperature, "cross_entropy": entropy.item(), "divergence": kl.item(),
        "total": total.item(), "gradient": logits.grad.flatten().tolist()})
place = pathlib.Path(__file__).with_suffix(".json")
place.write_text(json.dumps({
    "input": values.tolist(), "upstream": upstream.tolist(), "cases": cases, "learned": learned,
    "distillation": distillation, "logits": logits.tolist(), "teacher": teacher.tolist(), "targets": targets.tolist(),
    "weights": weights.tolist()}) + "\n")
