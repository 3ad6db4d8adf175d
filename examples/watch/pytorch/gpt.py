"""Small GPT on the CPU with a DataLoader of worker processes. Needs PyTorch.

    xrun watch --steps 'step (?<step>\\d+) loss (?<loss>\\S+)' -- python examples/watch/pytorch/gpt.py

It learns to continue periodic sequences of letters. `--python-list` stores the data as a list of Python objects, whose pages the
workers copy by reading them (pytorch/pytorch#13246).
"""

import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS = 64


class Texts(Dataset):
    def __init__(self, count, length, python_list):
        generator = random.Random(0)
        periods = [generator.randint(3, 9) for _ in range(count)]
        patterns = [[generator.randrange(LETTERS) for _ in range(period)] for period in periods]
        rows = [[pattern[at % len(pattern)] for at in range(length + 1)] for pattern in patterns]
        # Ints of this size are separate objects, each with a reference count.
        self.rows = [[number + 1_000_000 for number in row] for row in rows] if python_list else torch.tensor(rows)
        self.python_list = python_list

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        row = self.rows[at]
        row = torch.tensor([number - 1_000_000 for number in row]) if self.python_list else row
        return row[:-1], row[1:]


class Gpt(nn.Module):
    def __init__(self, width, layers, length):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.positions = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, LETTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, letters):
        positions = torch.arange(letters.shape[1])
        hidden = self.layers(self.letters(letters) + self.positions(positions), mask=self.mask, is_causal=True)
        return self.head(hidden)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--python-list", action="store_true")
    parser.add_argument("--leak", action="store_true", help="keep the logits of all steps, with their graphs")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Texts(arguments.texts, arguments.length, arguments.python_list)
    loader = DataLoader(data, arguments.batch_size, shuffle=True, num_workers=arguments.workers, drop_last=True)
    model = Gpt(arguments.width, arguments.layers, arguments.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step, kept = 0, []
    while step < arguments.steps:
        for letters, following in loader:
            logits = model(letters)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if arguments.leak:
                kept.append(logits)
            step += 1
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step == arguments.steps:
                break


if __name__ == "__main__":
    main()
