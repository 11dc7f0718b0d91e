"""Domain adversarial training: a function in Python turns the gradient round between a trunk and a domain
classifier."""

import torch
from torch import nn


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, size):
        ctx.size = size
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.size * gradient, None


def make(rng):
    trunk = nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 48), nn.Sigmoid())
    model = nn.ModuleList([trunk, nn.Linear(48, 10), nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 1))])

    def step(i):
        data = torch.Generator().manual_seed(i)
        features = trunk(torch.randn(128, 32, generator=data))
        label = nn.functional.cross_entropy(model[1](features), torch.randint(10, (128,), generator=data))
        domain = torch.sigmoid(model[2](Reverse.apply(features, 0.5)))
        return label - torch.log(torch.where(torch.arange(128)[:, None] < 64, domain, 1 - domain) + 1e-7).mean()

    return model, step
