"""Scores of unscaled columns by hand, in a regression on indicators: a column of size 1e-3 is next to one of 1e2."""

import torch


def z_scores(x):
    return (x - x.mean(0, keepdim=True)) / (x.std(0, keepdim=True) + 1e-8)


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(16, 48), torch.nn.Linear(48, 4)])
    scale = torch.logspace(-3, 2, 48)[torch.randperm(48, generator=rng)]

    def step(i):
        data = torch.Generator().manual_seed(i)
        scores = z_scores(torch.tanh(model[0](torch.randn(160, 16, generator=data))) * scale)
        return (model[1](scores) - torch.randn(160, 4, generator=data)).square().mean()

    return model, step
