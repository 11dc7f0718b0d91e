"""A router's probabilities first weigh all experts, then a mutual-information loss takes their logs: a pole that is
recorded after the reader."""

import torch
from torch import nn


class Soft(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.weight = nn.Parameter(torch.randn(experts, width, width) * width**-0.5)
        with torch.no_grad():
            self.router.weight.mul_(12)

    def forward(self, x):
        probability = torch.softmax(self.router(x), dim=-1)
        return torch.einsum("te,tw,ewv->tv", probability, x, self.weight), probability


def information(probability):
    marginal = probability.mean(0)
    conditional = (probability * torch.log(probability + 1e-12)).sum(-1).mean()
    return (marginal * torch.log(marginal + 1e-12)).sum() - conditional


def make(rng):
    model = nn.ModuleList([nn.Linear(32, 64), Soft(64, 16), nn.Linear(64, 32)])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(192, 32, generator=generator)
        mixed, probability = model[1](torch.tanh(model[0](x)))
        return (model[2](mixed) - x.roll(1, 1)).square().mean() + 0.1 * information(probability)

    return model, step
