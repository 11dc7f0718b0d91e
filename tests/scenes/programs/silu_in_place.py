"""SiLU in place writes over the result of a convolution's norm: the argument is saved before it is overwritten."""

import torch
from torch import nn
from torch.nn import functional as F


def make(rng):
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1),
        nn.BatchNorm2d(24),
        nn.SiLU(inplace=True),
        nn.Conv2d(24, 24, 3, padding=1),
        nn.SiLU(inplace=True),
        nn.Conv2d(24, 24, 3, 2, 1),
        nn.BatchNorm2d(24),
        nn.SiLU(inplace=True),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(24 * 16, 10),
    )

    def step(i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(10, (8,), generator=generator)
        return F.cross_entropy(
            model(torch.randn(8, 3, 16, 16, generator=generator) + (label[:, None, None, None] - 4.5) / 5), label
        )

    return model, step
