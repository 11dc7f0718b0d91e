"""AlexNet's local response norm: division by a power of a pooled sum of squares."""

import torch
from torch import nn


def make(rng):
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.LocalResponseNorm(5, alpha=1.0), nn.Conv2d(16, 8, 3))

    def step(i):
        return (model(3 * torch.randn(4, 3, 14, 14, generator=torch.Generator().manual_seed(i))) - 1).square().mean()

    return model, step
