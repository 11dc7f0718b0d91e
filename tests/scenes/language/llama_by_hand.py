"""LLaMA's block as transformers writes it: an RMS norm by hand, rotary embeddings, grouped keys and SwiGLU."""

import torch
from torch import nn
from torch.nn import functional as F


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + 1e-6)
        return self.weight * x.to(kind)


def rotate(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Block(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.first_norm, self.second_norm = RmsNorm(width), RmsNorm(width)
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def attention(self, x, cos, sin):
        q = self.query(x).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k = self.key(x).unflatten(-1, (self.groups, self.size)).transpose(1, 2)
        v = self.value(x).unflatten(-1, (self.groups, self.size)).transpose(1, 2)
        q, k = q * cos + rotate(q) * sin, k * cos + rotate(k) * sin
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=1) for t in (k, v))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    def forward(self, x, cos, sin):
        x = x + self.attention(self.first_norm(x), cos, sin)
        hidden = self.second_norm(x)
        return x + self.down(F.silu(self.gate(hidden)) * self.up(hidden))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(96, 64), nn.ModuleList(Block(64, 4, 2) for _ in range(2))
        self.norm, self.head = RmsNorm(64), nn.Linear(64, 96, bias=False)

    def forward(self, tokens):
        angles = torch.arange(tokens.shape[1])[:, None] * 10000.0 ** (-torch.arange(0, 16, 2) / 16)
        angles = torch.cat((angles, angles), dim=-1)
        x = self.tokens(tokens) * 0.2
        for block in self.blocks:
            x = block(x, angles.cos(), angles.sin())
        return self.head(self.norm(x))


def make(rng):
    model = Llama()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = (torch.randint(96, (6, 1), generator=generator) + torch.arange(33) * 5) % 96
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return model, step
