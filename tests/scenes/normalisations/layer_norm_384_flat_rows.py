"""LayerNorm over 384 with a massive activation at feature 300 of a few rows, as trained transformers have."""

import torch


def make(rng):
    first, norm, head = torch.nn.Linear(32, 384), torch.nn.LayerNorm(384), torch.nn.Linear(384, 16)
    model = torch.nn.ModuleList([first, norm, head])
    peak = torch.zeros(48, 384)
    peak[::8, 300] = 300

    def step(i):
        data = torch.Generator().manual_seed(i)
        hidden = first(torch.randn(48, 32, generator=data)) + peak
        return (head(norm(hidden)) - torch.randn(48, 16, generator=data)).square().mean()

    return model, step
