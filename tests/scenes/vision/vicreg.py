"""VICReg: a hinge on sqrt(x.var(0) + 1e-4), whose quiet columns are at the pole, and squares of covariances."""

import torch
from torch import nn
from torch.nn import functional as F


def spread(x):
    return F.relu(1 - torch.sqrt(x.var(dim=0) + 0.0001)).mean()


def covariance(x):
    x = x - x.mean(dim=0)
    c = (x.t() @ x) / (len(x) - 1)
    return (c.pow(2).sum() - c.diagonal().pow(2).sum()) / x.shape[1]


def make(rng):
    model = nn.Sequential(
        nn.Linear(64, 128),
        nn.BatchNorm1d(128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.BatchNorm1d(128),
        nn.ReLU(),
        nn.Linear(128, 96),
    )
    with torch.no_grad():
        model[6].weight[::4] *= 0.02  # columns that have collapsed

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(96, 64, generator=generator)
        a, b = (model(x + 0.3 * torch.randn(x.shape, generator=generator)) for _ in range(2))
        return 25 * F.mse_loss(a, b) + 25 * (spread(a) + spread(b)) / 2 + covariance(a) + covariance(b)

    return model, step
