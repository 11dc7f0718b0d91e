"""Convolution weights less their mean over their deviation (BiT, NFNet): a weight that is computed from weights
alone."""

import torch
from torch.nn import functional as F


def standardised(weight):
    variance, mean = torch.var_mean(weight, [1, 2, 3], keepdim=True, unbiased=False)
    return (weight - mean) / torch.sqrt(variance + 1e-8)


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Conv2d(3, 16, 3), torch.nn.GroupNorm(4, 16), torch.nn.Conv2d(16, 16, 3)])

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = F.conv2d(torch.randn(4, 3, 14, 14, generator=data), standardised(model[0].weight), model[0].bias)
        x = F.relu(model[1](x))
        return (F.conv2d(x, standardised(model[2].weight), model[2].bias) - 1).square().mean()

    return model, step
