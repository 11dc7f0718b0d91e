"""Swin-V2's window attention: cosines of queries and keys times the exponential of a learned, clamped scale, and a bias from
a small network of places."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class WindowAttention(nn.Module):
    def __init__(self, width, heads, window):
        super().__init__()
        self.heads, self.window = heads, window
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.scale = nn.Parameter(torch.log(10 * torch.ones(heads, 1, 1)))
        self.bias = nn.Sequential(nn.Linear(2, 64), nn.ReLU(inplace=True), nn.Linear(64, heads, bias=False))
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        away = (places[:, :, None] - places[:, None]).permute(1, 2, 0) * 8.0 / (window - 1)
        self.register_buffer("away", torch.sign(away) * torch.log2(away.abs() + 1) / 3)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        score = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        score = score * torch.clamp(self.scale, max=math.log(100)).exp()
        score = score + 16 * torch.sigmoid(self.bias(self.away).permute(2, 0, 1))
        return self.out((F.softmax(score, dim=-1) @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention, self.first_norm = WindowAttention(width, 4, 4), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.second_norm = nn.LayerNorm(width)

    def forward(self, x):  # the norms of version 2 come after the branch
        x = x + self.first_norm(self.attention(x))
        return x + self.second_norm(self.mlp(x))


def make(rng):
    model = nn.Sequential(nn.Linear(12, 48), Block(48), nn.LayerNorm(48), nn.Linear(48, 12))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(12, 16, 12, generator=generator).cumsum(1)
        return F.mse_loss(model(x), x.roll(1, 1) + 0.5)

    return model, step
