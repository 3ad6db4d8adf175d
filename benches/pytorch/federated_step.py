"""Times a training step of a node of `experiments/federated.toml` in eager PyTorch, and its memory.

Prints one line of JSON; `compare.py` runs it alternately with xrun. The adapters (109,280 parameters), batch, loss, clipping of the
global gradient norm and AdamW are those of xrun. The frozen encoder's tokens are in host memory, as after the first epoch of a
node. Tokens and targets are random, which does not affect the cost.
"""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn

from timing import peak_rss, time_steps

CLIPS, CLASSES, TOKENS, WIDTH, HEADS = 80, 10, 26, 64, 4


class Adapter(nn.Module):
    def __init__(self, hidden, latents, width):
        super().__init__()
        widths = [WIDTH, *hidden]
        layers = [
            nn.Sequential(nn.Linear(one, next), nn.LayerNorm(next), nn.GELU()) for one, next in zip(widths, hidden)
        ]
        self.tokens = nn.Sequential(*layers, nn.Linear(widths[-1], width))
        self.latents = nn.Parameter(torch.randn(latents, width) * latents**-0.5)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, tokens):
        tokens = self.tokens(tokens)
        by_head = lambda rows: rows.unflatten(-1, (HEADS, -1)).transpose(-2, -3)
        query = by_head(self.query(self.latents)).expand(len(tokens), -1, -1, -1)
        attended = F.scaled_dot_product_attention(query, by_head(self.key(tokens)), by_head(self.value(tokens)))
        return self.output(attended.transpose(1, 2).flatten(2)).flatten(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["federated"])
    for name, value in [("batch", 8), ("steps", 60), ("threads", 2)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    settings = parser.parse_args()
    resident_at_start = peak_rss()
    torch.set_num_threads(settings.threads)
    torch.manual_seed(1)
    adapters = nn.ModuleList([Adapter([128], 1, 64), Adapter([128, 128], 8, 96)])
    assert sum(parameter.numel() for parameter in adapters.parameters()) == 109_280
    optimizer = torch.optim.AdamW(adapters.parameters(), lr=1e-3, weight_decay=0.01)
    classes = torch.arange(CLIPS) % CLASSES
    clips = torch.randn(CLIPS, TOKENS, WIDTH) + torch.randn(CLASSES, 1, WIDTH)[classes]
    targets = [F.normalize(torch.randn(CLASSES, numbers), dim=1) * numbers**0.5 for numbers in (64, 8 * 96)]

    def step():
        indices = torch.randint(CLIPS, (settings.batch,))
        tokens, targets_of_batch = clips[indices], [target[classes[indices]] for target in targets]
        loss = sum(F.mse_loss(adapter(tokens), target) for adapter, target in zip(adapters, targets_of_batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adapters.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    print(json.dumps({"resident_at_start": resident_at_start} | time_steps(settings.steps, step)))


if __name__ == "__main__":
    main()
