"""Training steps of `experiments/vision_language.toml` in PyTorch; `twin.py` tells what a twin is.

Two batches of 8 images of 48 pixels and 47 text tokens, whose logits are computed for the tokens with a loss only. Images are decoded by
Pillow and averaged as xrun does, and kept up to the cap of xrun's cache. The mask of the loss begins after step 400.
"""
import functools
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from byte_pairs import END_OF_TEXT, BytePairs
from draws import items_of_batch
from gpt2_step import Block as LanguageBlock
from gpt2_step import Pass
from twin import Twin, main

SEED = 2
SIDE, PATCH, SHUFFLE, WIDTH, HEADS, LAYERS = 48, 8, 2, 64, 4, 2
VOCABULARY, CONTEXT, TEXT = 377, 128, 47
CELLS = SIDE // PATCH
IMAGE_TOKENS = (CELLS // SHUFFLE) ** 2
# `dataset.image-text.image_cache`.
CACHE_BYTES = 8 * 2**20


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, tokens, context):
        by_head = lambda rows: rows.unflatten(-1, (self.heads, -1)).transpose(-2, -3)
        query = by_head(self.query(tokens)).expand(len(context), -1, -1, -1)
        attended = F.scaled_dot_product_attention(query, by_head(self.key(context)), by_head(self.value(context)))
        return self.output(attended.transpose(1, 2).flatten(2))


class EncoderBlock(nn.Module):
    """Block of a vision transformer as Hugging Face has it."""

    def __init__(self, width, heads):
        super().__init__()
        self.layernorm_before, self.layernorm_after = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)
        self.attention = Attention(width, heads)
        self.intermediate, self.output = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, input):
        normalised = self.layernorm_before(input)
        middle = input + self.attention(normalised, normalised)
        return middle + self.output(F.gelu(self.intermediate(self.layernorm_after(middle))))


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.positions = nn.Parameter(torch.randn(1, CELLS**2, WIDTH) * 0.5)


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.layer = nn.ModuleList(EncoderBlock(WIDTH, HEADS) for _ in range(LAYERS))
        self.layernorm = nn.LayerNorm(WIDTH, 1e-12)

    def forward(self, images):
        # As xrun does it in the step: 8-bit pixels become floats from -1 to 1.
        images = images.permute(0, 3, 1, 2).float() / 127.5 - 1.0
        hidden = self.embeddings.patches(images).flatten(2).transpose(1, 2) + self.embeddings.positions
        for block in self.layer:
            hidden = block(hidden)
        return self.layernorm(hidden)


class Projector(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SHUFFLE**2 * WIDTH, WIDTH) * 0.02)

    def forward(self, features):
        small = CELLS // SHUFFLE
        features = features.reshape(-1, small, SHUFFLE, small, SHUFFLE * WIDTH).transpose(2, 3)
        return features.reshape(-1, small**2, SHUFFLE**2 * WIDTH) @ self.weight


class Language(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(LanguageBlock(settings) for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)


class VisionLanguage(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.vision, self.projector, self.language = Vision(), Projector(), Language(settings)

    def forward(self, images, text, positions):
        language = self.language
        tokens = torch.cat([self.projector(self.vision(images)), language.wte(text)], 1)
        hidden = (tokens + language.wpe.weight[: tokens.shape[1]]).flatten(0, 1)
        for block in language.h:
            hidden = block(hidden, len(images), Pass())
        return language.ln_f(hidden[positions]) @ language.wte.weight.T


class VisionLanguageTwin(Twin):
    weight_decay, clip_norm = 0.05, 0.5

    def __init__(self, settings):
        self.settings = settings
        settings.width, settings.heads, settings.rank, settings.alpha, settings.bits = WIDTH, HEADS, 1, 1.0, []
        self.model = VisionLanguage(settings)

    def loss(self, kind, images, text, positions, labels, count):
        return F.cross_entropy(self.model(images, text, positions), labels, reduction="sum") / count

    def flops(self):
        images = self.settings.batch * self.settings.accumulation

        def blocks(tokens):
            return LAYERS * images * (2 * tokens * 12 * WIDTH**2 + 4 * tokens**2 * WIDTH)

        patches = 2 * images * CELLS**2 * 3 * PATCH**2 * WIDTH
        projector = 2 * images * IMAGE_TOKENS * SHUFFLE**2 * WIDTH * WIDTH
        output = 2 * self.answer_tokens * WIDTH * VOCABULARY
        # The pixels have no gradient.
        return int(3 * (blocks(CELLS**2) + blocks(IMAGE_TOKENS + TEXT) + projector + output) + 2 * patches)

    def prepare(self, reference, dataset):
        super().prepare(reference, dataset)
        counts = [dataset[number][0][-1] for number in range(8)]
        self.answer_tokens = float(sum(counts)) / len(counts)


class Conversations(torch.utils.data.Dataset):
    """Steps of images with a question and an answer."""

    def __init__(self, path, settings):
        self.path, self.settings = pathlib.Path(path), settings
        records = []
        with open(self.path / "train.jsonl", encoding="utf-8") as file:
            for line in file:
                asked, answered = json.loads(line)["messages"]
                image, question = asked["content"]
                records.append((image["image"], f"question: {question['text']}\nanswer: ", answered["content"]))
        texts = ((text, 1) for _, prompt, answer in records for text in (prompt, answer))
        self.tokenizer = BytePairs(texts, VOCABULARY)
        self.records = records
        self.image = functools.lru_cache(CACHE_BYTES // (3 * SIDE**2))(self.decoded)
        self.columns = None

    def decoded(self, name):
        with Image.open(self.path / name) as image:
            pixels = np.asarray(image.convert("RGB"), np.float32)
        if self.columns is None:
            # Share of each pixel that a new one covers.
            edges = np.arange(len(pixels) + 1) * SIDE
            new = np.arange(SIDE + 1) * len(pixels)
            overlap = np.minimum(edges[None, 1:], new[1:, None]) - np.maximum(edges[None, :-1], new[:-1, None])
            self.columns = overlap.clip(0).astype(np.float32)
        side, area = len(pixels), len(pixels) ** 2
        narrow = (self.columns @ pixels.reshape(side, -1)).reshape(SIDE, side, 3)
        sums = self.columns @ narrow
        return torch.from_numpy(((sums + area // 2) // area).astype(np.uint8))

    def __getitem__(self, number):
        size, accumulation = self.settings.batch, self.settings.accumulation
        parts = [self.part(number * accumulation + part, size) for part in range(accumulation)]
        count = torch.tensor(float(sum(len(part[3]) for part in parts)))
        return [(*part, count) for part in parts]

    def part(self, number, size):
        inputs = torch.full((size, TEXT), END_OF_TEXT)
        images, positions, labels = [], [], []
        for row, example in enumerate(items_of_batch(SEED, "order", number, size, len(self.records))):
            name, prompt, answer = self.records[example]
            images.append(self.image(name))
            prompt, answer = self.tokenizer.encode(prompt), [*self.tokenizer.encode(answer), END_OF_TEXT]
            tokens = (prompt + answer)[: TEXT + 1]
            inputs[row, : len(tokens[:TEXT])] = torch.tensor(tokens[:TEXT])
            first = row * (IMAGE_TOKENS + TEXT) + IMAGE_TOKENS
            positions += range(first + len(prompt) - 1, first + len(tokens) - 1)
            labels += tokens[len(prompt) :]
        return torch.stack(images), inputs, torch.tensor(positions), torch.tensor(labels)


def add_arguments(parser):
    for name, value in [("batch", 8), ("accumulation", 2)]:
        parser.add_argument(f"--{name}", type=int, default=value)


def make(settings, reference):
    return VisionLanguageTwin(settings), Conversations(reference["data"], settings)


if __name__ == "__main__":
    main(["vision-language"], add_arguments, make)
