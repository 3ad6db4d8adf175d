"""A module caches the attention mask of each sequence length. The repaired module slices the mask of the greatest length."""

import torch
from torch.nn import functional

from loop import Loop
from torch_training import WIDTH

LONGEST = 700


def causal_mask(length):
    return torch.full((length, length), -torch.inf).triu(1)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.projection = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.masks = {}

    def forward(self, inputs):
        key = inputs.shape[0] if loop.leaky else LONGEST
        if key not in self.masks:
            self.masks[key] = causal_mask(key)
        length = len(inputs)
        query, key_vectors, values = self.projection(inputs)[None].chunk(3, dim=-1)
        return functional.scaled_dot_product_attention(query, key_vectors, values, self.masks[key][:length, :length])


loop, attention = Loop(__doc__), Attention()
torch.set_num_threads(1)
optimizer = torch.optim.SGD(attention.parameters(), lr=1e-3)
for step in loop:
    optimizer.zero_grad()
    # 37 and 400 have no common factor, so the lengths of 400 steps differ.
    loss = attention(torch.randn(300 + step * 37 % 400, WIDTH)).square().mean()
    loss.backward()
    optimizer.step()
    loop.loss = loss.item()
