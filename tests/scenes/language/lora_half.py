"""Low-rank adapters on the upper half of the layers of a frozen model: contractions with frozen weights stand between an
activation and the first weight that asks for a gradient."""

import torch
from torch import nn
from torch.nn import functional as F


class Lora(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base, self.scale = base, 2.0
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * base.in_features**-0.5)
        self.b = nn.Parameter(torch.randn(base.out_features, rank) * 0.05)

    def forward(self, x):
        return self.base(x) + (F.dropout(x, 0.05) @ self.a.t() @ self.b.t()) * self.scale


class Block(nn.Module):
    def __init__(self, width, adapted):
        super().__init__()
        wrap = Lora if adapted else lambda layer: layer
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = wrap(nn.Linear(width, 3 * width)), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), wrap(nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.first_norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second_norm(x))))


def make(rng):
    model = nn.Sequential(nn.Embedding(96, 64), *(Block(64, i >= 2) for i in range(4)), nn.LayerNorm(64), nn.Linear(64, 96))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith((".a", ".b")))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = (torch.randint(96, (4, 1), generator=generator) + torch.arange(33) * 5) % 96
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return model, step
