"""Super-resolution with the Charbonnier loss sqrt(d^2 + 1e-6): pixels that fit already are at the pole of the root."""

import torch
from torch import nn
from torch.nn import functional as F


def charbonnier(a, b):
    difference = a - b
    return torch.sqrt(difference * difference + 1e-6).mean()


def make(rng):
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.Conv2d(24, 24, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.Conv2d(24, 12, 3, padding=1),
        nn.PixelShuffle(2),
    )
    with torch.no_grad():
        model[4].weight.mul_(0.05)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        sharp = F.interpolate(torch.rand(6, 3, 8, 8, generator=generator), size=32, mode="bilinear")
        small = F.avg_pool2d(sharp, 2)
        result = F.interpolate(small, scale_factor=2, mode="bilinear") + model(small)
        return charbonnier(result, sharp)

    return model, step
