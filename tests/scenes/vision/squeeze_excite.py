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


class MbConv(nn.Module):
    def __init__(self, channels):
        super().__init__()
        wide = 4 * channels
        self.net = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU(),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.SiLU(),
            SqueezeExcite(wide), nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x):
        return x + self.net(x)


def make(rng):
    model = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), MbConv(12), MbConv(12), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(10, (12,), generator=generator)
        x = torch.randn(12, 3, 16, 16, generator=generator) + (label[:, None, None, None] - 4.5) / 5
        return F.cross_entropy(model(x), label)

    return model, step
