"""LayerNorm over 192 with an element of 100 at feature 100 of some rows: groups of 256 end within rows."""

import torch


def make(rng):
    first, norm, head = torch.nn.Linear(32, 192), torch.nn.LayerNorm(192), torch.nn.Linear(192, 16)
    model = torch.nn.ModuleList([first, norm, head])
    peak = torch.zeros(64, 192)
    peak[::4, 100] = 100

    def step(i):
        data = torch.Generator().manual_seed(i)
        hidden = first(torch.randn(64, 32, generator=data)) + peak
        return (head(norm(hidden)) - torch.randn(64, 16, generator=data)).square().mean()

    return model, step
