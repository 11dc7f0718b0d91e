"""LayerNorm over 96: every eighth row has an element of 1000 at feature 40, so rows in the same group are flat relative to
it."""

import torch


def make(rng):
    table = torch.nn.Parameter(torch.randn(64, 96, generator=rng))  # its gradient is dx
    norm, head = torch.nn.LayerNorm(96), torch.nn.Linear(96, 16)
    model = torch.nn.ModuleList([norm, head])
    model.table = table
    rows, peak = torch.arange(64), torch.zeros(64, 96)  # picked: tensors made of parameters alone are exact
    peak[::8, 40] = 1000

    def step(i):
        target = torch.randn(64, 16, generator=torch.Generator().manual_seed(i))
        return (head(norm(table[rows] + peak)) - target).square().mean()

    return model, step
