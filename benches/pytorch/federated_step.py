"""Training steps of a node of `experiments/federated.toml` in PyTorch; `twin.py` tells what a twin is.

The tokens of the frozen encoder are in host memory, as after the first epoch of a node: log-mel spectra of the sounds, encoded by xrun's
encoder. A DataLoader collates them clip by clip.
"""
import csv
import math
import pathlib
import wave

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from draws import Draws
from twin import Twin, load, main, read_safetensors
from vision_language_step import Attention, EncoderBlock

SEED = 1
TOKENS, WIDTH, HEADS, LAYERS = 26, 64, 4, 2
BANDS, FRAMES, PATCH = 64, 96, 16
FEDERATED_CLASSES, VALIDATION_FOLD = 10, 5


class Hidden(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear, self.norm = nn.Linear(inputs, outputs), nn.LayerNorm(outputs)

    def forward(self, input):
        return F.gelu(self.norm(self.linear(input)))


class Pooling(nn.Module):
    def __init__(self, latents, width):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(latents, width) * latents**-0.5)
        self.attention = Attention(width, HEADS)


class Adapter(nn.Module):
    def __init__(self, hidden, latents, width):
        super().__init__()
        widths = [WIDTH, *hidden]
        self.hidden = nn.ModuleList(Hidden(one, next) for one, next in zip(widths, hidden))
        self.output, self.pooling = nn.Linear(widths[-1], width), Pooling(latents, width)

    def forward(self, tokens):
        for layer in self.hidden:
            tokens = layer(tokens)
        return self.pooling.attention(self.pooling.latents[None], self.output(tokens)).flatten(1)


class Adapters(nn.Module):
    def __init__(self):
        super().__init__()
        self.pooled, self.tokens = Adapter([128], 1, 64), Adapter([128, 128], 8, 96)


class FederatedTwin(Twin):
    def __init__(self, settings):
        self.settings, self.model = settings, Adapters()

    def loss(self, kind, tokens, pooled, token_embeds):
        model = self.model
        return F.mse_loss(model.pooled(tokens), pooled) + F.mse_loss(model.tokens(tokens), token_embeds)

    def flops(self):
        def adapter(hidden, latents, width):
            widths = [WIDTH, *hidden, width]
            layers = sum(one * next for one, next in zip(widths, widths[1:]))
            # The query of the latents does not depend on the clips.
            once = latents * width**2
            every = TOKENS * (layers + 2 * width**2) + latents * (2 * TOKENS * width + width**2)
            # The encoder's tokens have no gradient.
            return 3 * (once + every * self.settings.batch) - self.settings.batch * TOKENS * widths[0] * widths[1]

        return 2 * (adapter([128], 1, 64) + adapter([128, 128], 8, 96))


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.cls_token, self.distillation_token = (nn.Parameter(torch.zeros(1, 1, WIDTH)) for _ in range(2))
        self.position_embeddings = nn.Parameter(torch.zeros(1, TOKENS, WIDTH))
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)


class Encoder(nn.Module):
    """Audio Spectrogram Transformer (Gong et al. 2021)."""

    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.layer = nn.ModuleList(EncoderBlock(WIDTH, HEADS) for _ in range(LAYERS))
        self.layernorm = nn.LayerNorm(WIDTH, 1e-12)

    def forward(self, spectra):
        embeddings, count = self.embeddings, len(spectra)
        patches = embeddings.patches(spectra.transpose(1, 2)[:, None]).flatten(2).transpose(1, 2)
        first = (token.expand(count, 1, WIDTH) for token in (embeddings.cls_token, embeddings.distillation_token))
        hidden = torch.cat([*first, patches], 1) + embeddings.position_embeddings
        for block in self.layer:
            hidden = block(hidden)
        return self.layernorm(hidden)


def log_mel(path):
    """Log-mel spectrum of a sound of 16 kHz, `[frames, bands]`, as `log_mel.rs` has it."""
    with wave.open(str(path)) as sound:
        samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2") / 2**15
    frames = np.lib.stride_tricks.sliding_window_view(samples, 400)[::160][:FRAMES]
    frames = frames - frames.mean(1, keepdims=True)
    frames = frames - 0.97 * np.concatenate([frames[:, :1], frames[:, :-1]], 1)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)
    power = np.abs(np.fft.rfft(frames * window, 512)[:, :256]) ** 2
    mel = lambda frequency: 1127 * np.log(1 + frequency / 700)
    low, high = mel(20.0), mel(8000.0)
    step = (high - low) / (BANDS + 1)
    left, bins = low + np.arange(BANDS)[:, None] * step, mel(np.arange(256) * 16000 / 512)
    weights = np.minimum((bins - left) / step, (left + 2 * step - bins) / step).clip(0)
    found = np.log(np.maximum(power @ weights.T, 2.0**-23)).astype(np.float32)
    found = np.concatenate([found, np.zeros((FRAMES - len(found), BANDS), np.float32)])
    return (found + np.float32(4.2677393)) / np.float32(2 * 4.5689974)


def target(kind, words, count):
    """Target of a class: a sum of normal numbers of its words."""
    total = np.zeros(count)
    for word in words:
        draws = Draws(SEED, f"target {kind} {word}", 0)
        pairs = [(1.0 - draws.uniform64(), draws.uniform64()) for _ in range(count)]
        total += [math.sqrt(-2 * math.log(one)) * math.cos(math.tau * other) for one, other in pairs]
    return torch.from_numpy((total * math.sqrt(1 / len(words))).astype(np.float32))


class Clips(torch.utils.data.Dataset):
    """Batches of clips of the only node."""

    def __init__(self, reference, settings):
        self.size, path = settings.batch, pathlib.Path(reference["data"])
        with open(next(path.glob("meta/*.csv")), newline="") as file:
            rows = [row for row in csv.DictReader(file) if int(row["target"]) < FEDERATED_CLASSES]
        rows = [row for row in rows if int(row["fold"]) != VALIDATION_FOLD]
        encoder = Encoder()
        load(encoder, read_safetensors(reference["encoder"]))
        spectra = (torch.from_numpy(log_mel(path / "audio" / row["filename"])) for row in rows)
        with torch.no_grad():
            self.tokens = [encoder(spectrum[None])[0] for spectrum in spectra]
        words = {int(row["target"]): row["category"].split("-") for row in rows}
        pooled = {number: target("pooled_prompt_embeds", words[number], 64) for number in words}
        token_embeds = {number: target("prompt_embeds", words[number], 8 * 96) for number in words}
        self.targets = [(pooled[int(row["target"])], token_embeds[int(row["target"])]) for row in rows]
        self.orders = {}

    def order(self, epoch):
        if epoch not in self.orders:
            self.orders[epoch] = list(range(len(self.tokens)))
            Draws(SEED, "order of clips", epoch).shuffle(self.orders[epoch])
        return self.orders[epoch]

    def __getitem__(self, number):
        epoch, batch = divmod(number, -(-len(self.tokens) // self.size))
        clips = self.order(epoch)[batch * self.size :][: self.size]
        return [torch.utils.data.default_collate([(self.tokens[clip], *self.targets[clip]) for clip in clips])]


def add_arguments(parser):
    parser.add_argument("--batch", type=int, default=8)


def make(settings, reference):
    return FederatedTwin(settings), Clips(reference, settings)


if __name__ == "__main__":
    main(["federated"], add_arguments, make)
