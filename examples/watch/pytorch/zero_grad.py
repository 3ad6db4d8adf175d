"""`zero_grad(set_to_none=True)` against zeroed gradients (`--keep`), which stay allocated during the forward pass. Needs PyTorch."""

import argparse

import torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--keep", action="store_true", help="zero the gradients instead of dropping them")
parser.add_argument("--steps", type=int, default=200)
arguments = parser.parse_args()

torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(16)), torch.nn.Linear(1024, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(1, arguments.steps + 1):
    optimizer.zero_grad(set_to_none=not arguments.keep)
    inputs, targets = torch.randn(64, 1024), torch.randint(0, 10, (64,))
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f}", flush=True)
