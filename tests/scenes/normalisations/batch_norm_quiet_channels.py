"""Batch norm over channels of unlike size, native: quiet channels are next to loud ones in memory if channels come last."""

import torch


def make(rng):
    scale = torch.logspace(-2, 1, 32)[torch.randperm(32, generator=rng)]
    model = torch.nn.ModuleList([torch.nn.Linear(16, 32, bias=False), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 8)])

    def step(i):
        data = torch.Generator().manual_seed(i)
        hidden = model[1](model[0](torch.randn(256, 16, generator=data)) * scale)
        return (model[2](torch.relu(hidden)) - torch.randn(256, 8, generator=data)).square().mean()

    return model, step
