"""A squeeze-and-excite gate: one sigmoid a channel is broadcast against a whole image."""

import torch
from torch import nn
from torch.nn import functional as F


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.expand(F.relu(self.reduce(x.mean((2, 3), keepdim=True)))))


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        )
        self.norm, self.gate = nn.BatchNorm2d(channels), SqueezeExcite(channels)

    def forward(self, x):
        return F.relu(x + self.gate(self.norm(self.second(F.silu(self.first(x))))))


def make(rng):
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), Block(32), Block(32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )

    def step(i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(10, (12,), generator=generator)
        tone = label[:, None, None, None] * torch.tensor([0.7, 1.9, 3.1])[:, None, None]
        x = torch.randn(12, 3, 16, 16, generator=generator) * (1 + tone.cos()) + tone.sin()
        return F.cross_entropy(model(x), label)

    return model, step
