"""Gemma 3's attention normalises queries and keys by head after their projections. Three of 1,024 tokens are separators with a
zero embedding: the gradient of such a row is 1 / sqrt(eps) times the others'."""

import torch
from torch import nn
from torch.nn import functional as F

BAR = 0.2


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.q_norm, self.k_norm = Norm(width // heads), Norm(width // heads)

    def forward(self, x):
        q, k, v = (project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for project in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v, is_causal=True)
        return self.o(mixed.transpose(1, 2).flatten(2))


def make(rng):
    model = nn.ModuleList([nn.Embedding(96, 72, padding_idx=0), Norm(72), Attention(72, 3), Norm(72), nn.Linear(72, 96)])
    with torch.no_grad():
        model[0].weight[0] = 0

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = 1 + (torch.randint(95, (32, 1), generator=generator) + torch.arange(33) * 5) % 95
        tokens[[1, 13, 26], [3, 21, 12]] = 0
        x = model[0](tokens[:, :-1])
        return F.cross_entropy(model[4](model[3](x + model[2](model[1](x)))).flatten(0, 1), tokens[:, 1:].flatten())

    return model, step
