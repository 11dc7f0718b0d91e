"""A whole network compiled by inductor, its loss and a regulariser with a logarithm outside."""

import torch
from torch import nn

SLOW = True


def make(rng):
    model = nn.Sequential(nn.Linear(32, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 64), nn.Sigmoid())
    compiled = torch.compile(model)

    def step(i):
        data = torch.Generator().manual_seed(i)
        p = compiled(torch.randn(96, 32, generator=data))
        target = (torch.rand(96, 64, generator=data) < 0.2).float()
        return nn.functional.binary_cross_entropy(p, target) - 0.1 * torch.log(p + 1e-6).mean()

    return model, step
