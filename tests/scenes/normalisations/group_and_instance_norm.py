"""Group norm and instance norm over planes, some of which hardly vary (a flat background)."""

import torch
from torch import nn


def make(rng):
    model = nn.Sequential(
        nn.Conv2d(4, 16, 3, padding=1), nn.InstanceNorm2d(16, affine=True), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1),
        nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 4, 1),
    )  # fmt: skip

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(4, 4, 16, 16, generator=data)
        x[::2] *= 0.01
        return (model(x) - torch.randn(4, 4, 16, 16, generator=data)).square().mean()

    return model, step
