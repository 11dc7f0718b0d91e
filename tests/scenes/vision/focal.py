"""The focal loss by hand: (1 - p)^gamma, a power, times a log of p that is clamped at 1e-6."""

import torch
from torch import nn


def focal(logits, target):
    probability = torch.sigmoid(logits)
    right = torch.where(target == 1, probability, 1 - probability).clamp(min=1e-6)
    alpha = torch.where(target == 1, 0.25, 0.75)
    return -(alpha * (1 - right).pow(1.5) * torch.log(right)).sum() / target.sum()


def make(rng):
    model = nn.Sequential(
        nn.Conv2d(8, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 6, 1)
    )
    with torch.no_grad():
        model[5].weight.mul_(15)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(6, 8, 16, 16, generator=generator)
        return focal(model(x), (x[:, :6] > 1.6).float())

    return model, step
