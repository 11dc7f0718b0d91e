"""A feed-forward layer gated by GELU: two halves of one projection multiply each other before the next contraction."""

import torch
from torch import nn
from torch.nn import functional as F


class GeGlu(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 6 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        value, gate = self.up(self.norm(x)).chunk(2, dim=-1)
        return x + self.down(value * F.gelu(gate))


def make(rng):
    model = nn.Sequential(nn.Embedding(96, 64), GeGlu(64), GeGlu(64), nn.LayerNorm(64), nn.Linear(64, 96))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = torch.randint(96, (192,), generator=generator)
        return F.cross_entropy(model(tokens), (7 * tokens + 3) % 96)

    return model, step
