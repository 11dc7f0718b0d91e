"""A residual block of convolutions and batch norms, shortcut included: the plainest place for noise, which must be
taken."""

import torch
from torch import nn


def make(rng):
    body = nn.Sequential(
        nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
        nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16),
    )  # fmt: skip
    model = nn.ModuleList([nn.Conv2d(3, 16, 3), body, nn.Linear(16, 10)])

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = model[0](torch.randn(8, 3, 14, 14, generator=data))
        x = nn.functional.relu(x + body(x)).mean([2, 3])
        return nn.functional.cross_entropy(model[2](x), torch.randint(10, (8,), generator=data))

    return model, step
