"""Training steps of `experiments/qat_gpt2.toml` in PyTorch; `twin.py` tells what a twin is.

`plain` trains all weights in full precision, as the first steps of the experiment do. `quantised` is a later step: a frozen base,
alternating precisions (32, 8, 4 bits), fake quantisation of weights, activations, keys and values by PyTorch's fused operations,
quantised LoRA for each precision, and half of the loss distilled from the logits of the highest precision. Without a reference tokens
are random, as on machines that `.ci/gpu` copies the scripts to.
"""
import json
import math

import torch
import torch.nn.functional as F

from byte_pairs import END_OF_TEXT, BytePairs
from draws import Draws, items_of_batch
from twin import Twin, main

FULL = 32
SEED = 4
CALIBRATION_BATCHES = 8


class Ranges(torch.nn.Module):
    """Minimum and maximum of an activation, for each precision: of the calibration, then moving averages."""

    def __init__(self, precisions):
        super().__init__()
        self.bounds = [None] * precisions

    def quantise(self, precision, values, bits, text, calibrating):
        if bits == FULL:
            return values
        low, high = torch.aminmax(values.detach()[text])
        old = self.bounds[precision]
        if old is not None and calibrating:
            low, high = torch.minimum(old[0], low), torch.maximum(old[1], high)
        elif old is not None:
            low, high = old[0] * 0.9 + low * 0.1, old[1] * 0.9 + high * 0.1
        self.bounds[precision] = (low, high)
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


class Pass:
    """A forward pass: the number of its precision and its bits, or `None` for full precision without LoRA."""

    def __init__(self, precision=None, bits=None, text=None, calibrating=False):
        self.precision, self.bits, self.text, self.calibrating = precision, bits, text, calibrating


class Lora(torch.nn.Module):
    def __init__(self, inputs, rank, outputs):
        super().__init__()
        self.a = torch.nn.Parameter(torch.randn(inputs, rank) * 0.02)
        self.b = torch.nn.Parameter(torch.zeros(rank, outputs))


class Linear(torch.nn.Module):
    def __init__(self, inputs, outputs, settings):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = torch.nn.Parameter(torch.zeros(outputs))
        self.lora = torch.nn.ModuleList(Lora(inputs, settings.rank, outputs) for _ in settings.bits)
        self.scale = settings.alpha / settings.rank
        self.range = Ranges(len(settings.bits))

    def forward(self, input, through):
        if through.precision is None:
            return torch.addmm(self.bias, input, self.weight)
        weights, activations, _ = through.bits
        input = self.range.quantise(through.precision, input, activations, through.text, through.calibrating)
        output = torch.addmm(self.bias, input, quantised_weight(self.weight, weights))
        lora = self.lora[through.precision]
        return output + input @ quantised_weight(lora.a, weights) * self.scale @ quantised_weight(lora.b, weights)


class Attention(torch.nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.heads = settings.heads
        self.c_attn = Linear(settings.width, 3 * settings.width, settings)
        self.c_proj = Linear(settings.width, settings.width, settings)
        self.key, self.value = Ranges(len(settings.bits)), Ranges(len(settings.bits))

    def forward(self, input, batch, through):
        query, key, value = self.c_attn(input, through).chunk(3, 1)
        if through.precision is not None:
            about = through.bits[2], through.text, through.calibrating
            key = self.key.quantise(through.precision, key, *about)
            value = self.value.quantise(through.precision, value, *about)
        by_head = lambda rows: rows.reshape(batch, -1, self.heads, rows.shape[1] // self.heads).transpose(1, 2)
        attended = F.scaled_dot_product_attention(by_head(query), by_head(key), by_head(value), is_causal=True)
        return self.c_proj(attended.transpose(1, 2).reshape(input.shape), through)


class Mlp(torch.nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.c_fc = Linear(settings.width, 4 * settings.width, settings)
        self.c_proj = Linear(4 * settings.width, settings.width, settings)

    def forward(self, input, through):
        return self.c_proj(F.gelu(self.c_fc(input, through), approximate="tanh"), through)


class Block(torch.nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(settings.width), torch.nn.LayerNorm(settings.width)
        self.attn, self.mlp = Attention(settings), Mlp(settings)

    def forward(self, input, batch, through):
        middle = input + self.attn(self.ln_1(input), batch, through)
        return middle + self.mlp(self.ln_2(middle), through)


class Gpt2(torch.nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.wte = torch.nn.Embedding(settings.vocabulary, settings.width)
        self.wpe = torch.nn.Embedding(settings.context, settings.width)
        torch.nn.init.normal_(self.wte.weight, std=0.02)
        torch.nn.init.normal_(self.wpe.weight, std=0.02)
        self.h = torch.nn.ModuleList(Block(settings) for _ in range(settings.layers))
        self.ln_f = torch.nn.LayerNorm(settings.width)

    def hidden(self, tokens, through):
        batch, length = tokens.shape
        middle = (self.wte(tokens) + self.wpe.weight[:length]).flatten(0, 1)
        for block in self.h:
            middle = block(middle, batch, through)
        return middle

    def forward(self, tokens, through):
        return self.ln_f(self.hidden(tokens, through)) @ self.wte.weight.T


class LanguageTwin(Twin):
    def __init__(self, settings):
        self.settings = settings
        self.model = Gpt2(settings).to(settings.device)
        if self.settings.kind == "quantised":
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad = ".lora." in name
        self.learning_rate = 4e-3

    def kind(self, number):
        return number % len(self.settings.bits) if self.settings.kind == "quantised" else None

    def loss(self, kind, tokens, targets, text):
        if kind is None:
            with torch.autocast(self.settings.device, torch.bfloat16, self.settings.bfloat16):
                return F.cross_entropy(self.model(tokens, Pass()), targets) / self.settings.accumulation
        teacher = None
        if kind > 0:
            with torch.no_grad():
                teacher = self.model(tokens, Pass(0, self.settings.bits[0]))
        logits = self.model(tokens, Pass(kind, self.settings.bits[kind], text))
        loss = F.cross_entropy(logits, targets)
        if teacher is None:
            return loss
        # Of the tokens that have a loss.
        logits, teacher = logits[text].log_softmax(1), teacher[text].log_softmax(1)
        return 0.5 * loss + 0.5 * F.kl_div(logits, teacher, log_target=True, reduction="batchmean")

    def prepare(self, reference, dataset):
        super().prepare(reference, dataset)
        if self.settings.kind == "plain":
            return
        # The ranges are those of the calibration batches before the first quantised step.
        with torch.no_grad():
            for number in range(CALIBRATION_BATCHES):
                ((tokens, _, text),) = dataset.batch("calibration", number)
                for precision, bits in enumerate(self.settings.bits):
                    self.model.hidden(tokens, Pass(precision, bits, text, True))

    def flops(self):
        settings = self.settings
        tokens, width = settings.batch * settings.length, settings.width
        linear = 2 * tokens * settings.layers * 12 * width**2
        attention = 2 * 2 * settings.layers * settings.batch * settings.length**2 * width
        output = 2 * tokens * width * settings.vocabulary
        if settings.kind == "plain":
            return 3 * (linear + attention + output)
        # The sides of the four linear layers of a block are 16 widths. The base has no gradients of weights, and nothing below the first
        # LoRA has any; two of three steps have a teacher.
        lora = 2 * tokens * settings.layers * settings.rank * 16 * width
        first = 2 * tokens * width * (3 * width + settings.rank)
        trained = 2 * linear + 3 * attention + 2 * output + 3 * lora - first
        return trained + (linear + attention + output + lora) * 2 // 3


class RandomTokens(torch.utils.data.Dataset):
    def __init__(self, settings):
        self.settings = settings

    def batch(self, purpose, number):
        settings, generator = self.settings, torch.Generator().manual_seed(number)
        size = settings.accumulation, settings.batch, settings.length + 1
        parts = torch.randint(settings.vocabulary, size, generator=generator).to(settings.device)
        text = torch.arange(settings.batch * settings.length, device=settings.device)
        return [(tokens[:, :-1], tokens[:, 1:].flatten(), text) for tokens in parts]

    def __getitem__(self, number):
        return self.batch("order", number)


class Questions(torch.utils.data.Dataset):
    """Batches of questions of a file in SQuAD's form, tokenised once, as xrun's cache holds them."""

    def __init__(self, path, settings):
        self.size, self.length = settings.batch, settings.length
        with open(path, encoding="utf-8") as file:
            articles = json.load(file)["data"]
        articles = articles[: len(articles) - max(math.floor(len(articles) * 0.1 + 0.5), 1)]
        paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
        texts = []
        for paragraph in paragraphs:
            texts += [(f"Context: {paragraph['context']}\nAnswer:", len(paragraph["qas"])), ("\n", len(paragraph["qas"]) - 1)]
            texts += [(f"Question: {asked['question']}\n", 1) for asked in paragraph["qas"]]
        self.tokenizer = BytePairs(texts, settings.vocabulary)
        asked = [(paragraph["context"], question) for paragraph in paragraphs for question in paragraph["qas"]]
        self.examples = [self.example(number, *one) for number, one in enumerate(asked)]

    def example(self, number, context, asked):
        encode, length = self.tokenizer.encode, self.length
        first = asked["answers"][0]
        answer = encode(f" {first['text']}")[: max(length // 4, 1)] + [END_OF_TEXT]
        reserved = max(length // 4, 1) + 1
        before = encode(f"Question: {asked['question']}")[: length // 2] + encode("\nContext:")
        after, tokens = encode("\nAnswer:"), encode(f" {context}")
        room = max(length + 1 - len(before) - len(after) - reserved, 0)
        if len(tokens) > room:
            # A window with the answer in it, anywhere.
            ends, end = [], 0
            for token in tokens:
                end += self.tokenizer.bytes[token]
                ends.append(end)
            begin, end = first["answer_start"] + 1, first["answer_start"] + 1 + len(first["text"])
            covered = sum(end <= begin for end in ends), sum(other < end for other in ends) + 1
            latest = min(covered[0], len(tokens) - room)
            earliest = min(max(covered[1] - room, 0), latest)
            start = earliest + Draws(SEED, "window", number).below(latest - earliest + 1)
            tokens = tokens[start : start + room]
        return (before + tokens + after)[: length + 1 - reserved] + answer

    def batch(self, purpose, number):
        inputs = torch.full((self.size, self.length), END_OF_TEXT)
        targets = torch.full((self.size, self.length), -100)
        for row, question in enumerate(items_of_batch(SEED, purpose, number, self.size, len(self.examples))):
            tokens = torch.tensor(self.examples[question])
            inputs[row, : len(tokens)] = tokens[: self.length]
            targets[row, : len(tokens) - 1] = tokens[1:]
        targets = targets.flatten()
        return [(inputs, targets, (targets >= 0).nonzero()[:, 0])]

    def __getitem__(self, number):
        return self.batch("order", number)


def add_arguments(parser):
    for name, value in [("layers", 2), ("heads", 4), ("width", 64), ("context", 128), ("vocabulary", 512)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in [("batch", 16), ("length", 64), ("rank", 8)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--accumulation", type=int, default=1, help="parts of a batch of random tokens, of `--batch` sequences each")
    parser.add_argument("--bfloat16", action="store_true", help="autocast the products of `plain`")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; on a GPU matrix products use TF32, as in xrun")


def make(settings, reference):
    settings.alpha, settings.bits = 16.0, [(32, 32, 32), (8, 8, 8), (4, 8, 4)]
    torch.backends.cuda.matmul.allow_tf32 = True
    twin = LanguageTwin(settings)
    dataset = Questions(reference["data"], settings) if reference else RandomTokens(settings)
    return twin, dataset


if __name__ == "__main__":
    main(["plain", "quantised"], add_arguments, make)
