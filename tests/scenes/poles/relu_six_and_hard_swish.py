"""A MobileNet block: ReLU6, hard swish and hard sigmoid, whose slopes are chosen by comparisons, between
convolutions."""

import torch
from torch import nn


def make(rng):
    model = nn.Sequential(
        nn.Conv2d(8, 32, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(), nn.Conv2d(32, 32, 3, padding=1, groups=32, bias=False),
        nn.BatchNorm2d(32), nn.Hardswish(), nn.Conv2d(32, 8, 1), nn.Hardsigmoid(), nn.Flatten(), nn.Linear(8 * 144, 10),
    )  # fmt: skip

    def step(i):
        data = torch.Generator().manual_seed(i)
        target = torch.randint(10, (8,), generator=data)
        return nn.functional.cross_entropy(model(torch.randn(8, 8, 12, 12, generator=data)), target)

    return model, step
