"""ConvNeXt: a depthwise convolution, a layer norm over channels that come last, and a gain of 1e-6 on the branch."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(1e-6 * torch.ones(width))

    def forward(self, x):
        hidden = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        hidden = self.gamma * self.down(F.gelu(self.up(hidden)))
        return x + hidden.permute(0, 3, 1, 2)


def make(rng):
    model = nn.Sequential(
        nn.Conv2d(3, 32, 4, 4),
        Block(32),
        Block(32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.LayerNorm(32),
        nn.Linear(32, 10),
    )

    def step(i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(10, (32,), generator=generator)
        x = torch.randn(32, 3, 32, 32, generator=generator) + (label[:, None, None, None] - 4.5) / 5
        return F.cross_entropy(model(x), label)

    return model, step
