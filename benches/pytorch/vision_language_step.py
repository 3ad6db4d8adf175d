"""Times a training step of `experiments/vision_language.toml` in eager PyTorch, and its memory.

Prints one line of JSON; `compare.py` runs it alternately with xrun. The network, two batches of 8 images of 48 pixels and 47 text
tokens, logits of the tokens with a loss only, clipping of the global gradient norm and AdamW are those of xrun. Images and texts
are random, which does not affect the cost.
"""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn

from timing import peak_rss, time_steps

EXAMPLES, SIDE, PATCH, SHUFFLE, WIDTH, HEADS, LAYERS = 64, 48, 8, 2, 64, 4, 2
VOCABULARY, CONTEXT, TEXT = 377, 128, 47
CELLS = SIDE // PATCH


class Block(nn.Module):
    """Block of both transformers; the one for images attends to all tokens and uses the exact GELU."""

    def __init__(self, epsilon, causal):
        super().__init__()
        self.causal = causal
        self.before, self.after = nn.LayerNorm(WIDTH, epsilon), nn.LayerNorm(WIDTH, epsilon)
        self.attention, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        gelu = nn.GELU("tanh" if causal else "none")
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), gelu, nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, input):
        query, key, value = self.attention(self.before(input)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        middle = input + self.output(attended.transpose(1, 2).flatten(2))
        return middle + self.mlp(self.after(middle))


class VisionLanguage(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.patch_positions = nn.Parameter(torch.randn(CELLS**2, WIDTH) * 0.5)
        self.vision = nn.Sequential(*(Block(1e-12, False) for _ in range(LAYERS)), nn.LayerNorm(WIDTH, 1e-12))
        self.projector = nn.Linear(SHUFFLE**2 * WIDTH, WIDTH, bias=False)
        self.embedding = nn.Parameter(torch.randn(VOCABULARY, WIDTH) * 0.02)
        self.positions = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.language = nn.Sequential(*(Block(1e-5, True) for _ in range(LAYERS)), nn.LayerNorm(WIDTH))

    def forward(self, images, text, has_loss):
        features = self.vision(self.patches(images).flatten(2).transpose(1, 2) + self.patch_positions)
        small = CELLS // SHUFFLE
        features = features.reshape(-1, small, SHUFFLE, small, SHUFFLE * WIDTH).transpose(2, 3).reshape(-1, small**2, SHUFFLE**2 * WIDTH)
        tokens = torch.cat([self.projector(features), F.embedding(text, self.embedding)], 1)
        hidden = self.language[:-1](tokens + self.positions[: tokens.shape[1]])[:, small**2 :]
        return self.language[-1](hidden[has_loss]) @ self.embedding.T


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["vision-language"])
    for name, value in [("batch", 8), ("accumulation", 2), ("answer", 25), ("steps", 60), ("threads", 2)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    settings = parser.parse_args()
    resident_at_start = peak_rss()
    torch.set_num_threads(settings.threads)
    torch.manual_seed(2)
    model = VisionLanguage()
    assert sum(parameter.numel() for parameter in model.parameters()) == 263_552
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    all_images = torch.randint(256, (EXAMPLES, 3, SIDE, SIDE), dtype=torch.uint8)
    all_texts = torch.randint(VOCABULARY, (EXAMPLES, TEXT + 1))
    has_loss = torch.zeros(settings.batch, TEXT, dtype=torch.bool)
    has_loss[:, TEXT - settings.answer :] = True

    def step():
        total = 0.0
        for _ in range(settings.accumulation):
            indices = torch.randint(EXAMPLES, (settings.batch,))
            images, text = all_images[indices] / 127.5 - 1, all_texts[indices]
            logits = model(images, text[:, :-1], has_loss)
            loss = F.cross_entropy(logits, text[:, 1:][has_loss]) / settings.accumulation
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return total

    print(json.dumps({"resident_at_start": resident_at_start} | time_steps(settings.steps, step)))


if __name__ == "__main__":
    main()
