"""Queries and keys are divided by their own length and scaled by a learned factor before attention by hand."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.scale = nn.Parameter(torch.full((heads, 1, 1), 8.0))

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        return self.out((torch.softmax(self.scale * (q @ k.transpose(-2, -1)), dim=-1) @ v).transpose(1, 2).flatten(2))


def make(rng):
    model = nn.ModuleList([nn.Embedding(96, 64), nn.LayerNorm(64), Attention(64, 4), nn.Linear(64, 96)])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = (torch.randint(96, (8, 1), generator=generator) + torch.arange(33) * 5) % 96
        x = model[0](tokens[:, :-1])
        return F.cross_entropy(model[3](x + model[2](model[1](x))).flatten(0, 1), tokens[:, 1:].flatten())

    return model, step
