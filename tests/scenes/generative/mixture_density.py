"""A mixture density network: logsumexp over components whose scales, an exponential, divide the residual."""

import math

import torch
from torch import nn


class MixtureDensity(nn.Module):
    def __init__(self, components=8, targets=4):
        super().__init__()
        self.shape = (components, targets)
        self.trunk = nn.Sequential(nn.Linear(16, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh())
        self.weights = nn.Linear(96, components)
        self.means, self.log_scales = nn.Linear(96, components * targets), nn.Linear(96, components * targets)

    def forward(self, x):
        hidden = self.trunk(x)
        weights = torch.log_softmax(self.weights(hidden), dim=1)
        return weights, self.means(hidden).unflatten(1, self.shape), self.log_scales(hidden).unflatten(1, self.shape)


def negative_log_likelihood(y, log_weights, means, log_scales):
    standard = (y[:, None] - means) / torch.exp(log_scales)
    components = (-0.5 * standard**2 - log_scales - 0.5 * math.log(2 * math.pi)).sum(-1)
    return -torch.logsumexp(log_weights + components, dim=1).mean()


def make(rng):
    model = MixtureDensity()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(256, 16, generator=generator)
        side = torch.randint(2, (256, 1), generator=generator) * 4.0 - 2
        y = side + x[:, :4].sin() + 0.1 * torch.randn(256, 4, generator=generator)
        return negative_log_likelihood(y, *model(x))

    return model, step
