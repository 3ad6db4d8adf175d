"""Times a training step of `experiments/qat_gpt2.toml` in eager PyTorch, and its memory.

Prints one line of JSON; `compare.py` runs it alternately with xrun. Shapes, batch, AdamW, clipping of the global gradient norm and
loss are those of xrun. `plain` trains all weights in full precision, as the first steps of the experiment do. `quantised` is a
later step: a frozen base, alternating precisions (32, 8, 4 bits), fake quantisation of weights, activations, keys and values by
PyTorch's fused operations, quantised LoRA for each precision, and half of the loss distilled from the logits of the highest
precision. Tokens are random, which does not affect the cost. The script is self-contained: `.ci/gpu` copies it to other machines.
"""
import argparse
import json
import math
import resource
import time

import torch
import torch.nn.functional as F

FULL = 32
# Steps that processor time does not include.
WARMUP_STEPS = 3


class Ranges:
    """Moving minimum and maximum of an activation, for each precision."""

    def __init__(self):
        self.bounds = {}

    def observe(self, precision, values):
        low, high = torch.aminmax(values.detach())
        if precision in self.bounds:
            old = self.bounds[precision]
            low, high = old[0] * 0.9 + low * 0.1, old[1] * 0.9 + high * 0.1
        self.bounds[precision] = (low, high)

    def quantise(self, precision, values, bits, observe):
        if bits == FULL:
            return values
        if observe or precision not in self.bounds:
            self.observe(precision, values)
        low, high = self.bounds[precision]
        low, high = low.clamp(max=0), high.clamp(min=0)
        qmax = 2**bits - 1
        scale = ((high - low) / qmax).clamp(min=1e-12)
        zero = (-low / scale).round().to(torch.int32)
        return torch.fake_quantize_per_tensor_affine(values, scale, zero, 0, qmax)


def quantised_weight(weight, bits):
    """Returns the fake-quantised weight `[inputs, outputs]`: symmetric, one scale for each output."""
    if bits == FULL:
        return weight
    qmax = 2 ** (bits - 1) - 1
    scale = (weight.detach().abs().amax(0) / qmax).clamp(min=1e-12)
    zero = torch.zeros_like(scale, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(weight, scale, zero, 1, -qmax, qmax)


class Linear(torch.nn.Module):
    def __init__(self, inputs, outputs, settings):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = torch.nn.Parameter(torch.zeros(outputs))
        count, rank = len(settings.bits), settings.rank
        self.a = torch.nn.ParameterList([torch.randn(inputs, rank) * 0.02 for _ in range(count)])
        self.b = torch.nn.ParameterList([torch.zeros(rank, outputs) for _ in range(count)])
        self.scale = settings.alpha / rank
        self.range = Ranges()

    def forward(self, input, precision):
        if precision is None:
            return torch.addmm(self.bias, input, self.weight)
        number, (weights, activations, _), observe = precision
        input = self.range.quantise(number, input, activations, observe)
        output = torch.addmm(self.bias.detach(), input, quantised_weight(self.weight.detach(), weights))
        a, b = quantised_weight(self.a[number], weights), quantised_weight(self.b[number], weights)
        return output + input @ a @ b * self.scale


class Block(torch.nn.Module):
    def __init__(self, settings):
        super().__init__()
        width = settings.width
        self.heads = settings.heads
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.c_attn = Linear(width, 3 * width, settings)
        self.c_proj = Linear(width, width, settings)
        self.c_fc = Linear(width, 4 * width, settings)
        self.mlp_proj = Linear(4 * width, width, settings)
        self.key, self.value = Ranges(), Ranges()

    def forward(self, input, batch, length, mask, precision):
        width = input.shape[1]
        query, key, value = self.c_attn(self.ln_1(input), precision).split(width, 1)
        if precision is not None:
            number, (_, _, bits), observe = precision
            key = self.key.quantise(number, key, bits, observe)
            value = self.value.quantise(number, value, bits, observe)
        size = width // self.heads
        by_head = lambda tensor: tensor.reshape(batch, length, self.heads, size).transpose(1, 2)
        scores = by_head(query) @ by_head(key).transpose(2, 3) / math.sqrt(size) + mask
        output = (scores.softmax(3) @ by_head(value)).transpose(1, 2).reshape(batch * length, width)
        middle = input + self.c_proj(output, precision)
        wide = F.gelu(self.c_fc(self.ln_2(middle), precision), approximate="tanh")
        return middle + self.mlp_proj(wide, precision)


class Gpt2(torch.nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.wte = torch.nn.Parameter(torch.randn(settings.vocabulary, settings.width) * 0.02)
        self.wpe = torch.nn.Parameter(torch.randn(settings.context, settings.width) * 0.02)
        self.blocks = torch.nn.ModuleList([Block(settings) for _ in range(settings.layers)])
        self.ln_f = torch.nn.LayerNorm(settings.width)

    def forward(self, tokens, precision):
        batch, length = tokens.shape
        mask = torch.full((length, length), -1e9, device=tokens.device).triu(1)
        middle = (F.embedding(tokens, self.wte) + self.wpe[:length]).reshape(batch * length, -1)
        for block in self.blocks:
            middle = block(middle, batch, length, mask, precision)
        return self.ln_f(middle) @ self.wte.T


def loss_of(model, tokens, targets, precision, full):
    if precision is None or precision[0] == 0:
        return F.cross_entropy(model(tokens, precision), targets)
    with torch.no_grad():
        teacher = model(tokens, (0, full, False))
    logits = model(tokens, precision)
    divergence = F.kl_div(logits.log_softmax(1), teacher.log_softmax(1), log_target=True, reduction="batchmean")
    return 0.5 * F.cross_entropy(logits, targets) + 0.5 * divergence


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["plain", "quantised"])
    for name, value in [("layers", 2), ("heads", 4), ("width", 64), ("context", 128), ("vocabulary", 512)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in [("batch", 16), ("length", 64), ("rank", 8), ("steps", 60), ("threads", 2)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--accumulation", type=int, default=1, help="batches of a step")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--bfloat16", action="store_true", help="matrix products in bfloat16 (autocast)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; on a GPU matrix products use TF32, as in xrun")
    settings = parser.parse_args()
    settings.alpha = 16.0
    settings.bits = [(32, 32, 32), (8, 8, 8), (4, 8, 4)]
    resident_at_start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    torch.set_num_threads(settings.threads)
    torch.manual_seed(4)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = Gpt2(settings).to(settings.device)
    quantised = settings.kind == "quantised"
    if quantised:
        for name, parameter in model.named_parameters():
            parameter.requires_grad = ".a." in name or ".b." in name
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    if settings.compile:
        model = torch.compile(model)
    seconds = []
    cpu_before = 0.0
    for step in range(settings.steps):
        if step == WARMUP_STEPS:
            cpu_before = time.process_time()
        size = (settings.accumulation, settings.batch, settings.length + 1)
        batches = torch.randint(settings.vocabulary, size).to(settings.device)
        started = time.perf_counter()
        precision = (step % 3, settings.bits[step % 3], True) if quantised else None
        value = 0.0
        for tokens in batches:
            inputs, targets = tokens[:, :-1], tokens[:, 1:].reshape(-1)
            with torch.autocast(settings.device, torch.bfloat16, enabled=settings.bfloat16):
                loss = loss_of(model, inputs, targets, precision, settings.bits[0]) / settings.accumulation
            loss.backward()
            value += loss.detach()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = value.item()
        seconds.append(time.perf_counter() - started)
    cpu = (time.process_time() - cpu_before) / max(settings.steps - WARMUP_STEPS, 1)
    on_gpu = settings.device != "cpu"
    memory = {
        "reserved_peak": torch.cuda.max_memory_reserved() if on_gpu else None,
        "allocated_peak": torch.cuda.max_memory_allocated() if on_gpu else None,
    }
    print(json.dumps({"seconds": seconds, "cpu": cpu, "resident_at_start": resident_at_start, "loss": value} | memory))


if __name__ == "__main__":
    main()
