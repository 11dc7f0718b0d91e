"""The same order of operators in bfloat16: the norm by hand casts to float32 and back, so that the saved tensors are of
two types."""

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
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(kind)


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = RmsNorm(width)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        hidden = self.norm(x)
        return x + self.down(F.silu(self.gate(hidden)) * self.up(hidden))


def make(rng):
    model = nn.Sequential(nn.Embedding(96, 64), FeedForward(64), FeedForward(64), RmsNorm(64), nn.Linear(64, 96, bias=False))
    model = model.to(torch.bfloat16)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = torch.randint(96, (256,), generator=generator)
        return F.cross_entropy(model(tokens).float(), (7 * tokens + 3) % 96)

    return model, step
