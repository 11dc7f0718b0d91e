"""A residual stream that grows in place: `x += y` writes over a tensor that came from a product and is not saved."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = self.down(F.gelu(self.up(self.norm(x)))) * self.gain
        y += x
        return y


def make(rng):
    model = nn.Sequential(nn.Linear(64, 96), Block(96), Block(96), nn.LayerNorm(96), nn.Linear(96, 10))

    def step(i):
        x = torch.randn(192, 64, generator=torch.Generator().manual_seed(i))
        return F.cross_entropy(model(x), x[:, :10].argmax(1))

    return model, step
