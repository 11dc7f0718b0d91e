"""Attention by hand as in minGPT: scaled scores, a causal mask of -inf, a softmax, dropout, and two activations contracted."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(64, 64).tril())

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        score = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
        score = score.masked_fill(self.mask[: x.shape[1], : x.shape[1]] == 0, float("-inf"))
        return self.out((F.dropout(F.softmax(score, dim=-1), 0.1) @ v).transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(96, 64), nn.Linear(64, 96)
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(2))
        self.layers = nn.ModuleList(Attention(64, 4) for _ in range(2))
        with torch.no_grad():
            for layer in self.layers:
                layer.qkv.weight.mul_(2)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x))
        return self.head(x)


def make(rng):
    model = Model()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = torch.randint(96, (8, 49), generator=generator)
        return F.cross_entropy(model(tokens[:, 1:]).flatten(0, 1), tokens[:, :-1].flatten())

    return model, step
