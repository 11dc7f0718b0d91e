"""x / norm(x) by hand before a contrastive product: rows of unlike length in one group."""

import torch


def unit(x):
    return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-8)


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(32, 96), torch.nn.ReLU(), torch.nn.Linear(96, 64, bias=False))

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(64, 32, generator=data) * torch.logspace(-2, 1, 64)[torch.randperm(64, generator=data), None]
        a, b = unit(model(x)), unit(model(x * (1 + 0.1 * torch.randn(64, 32, generator=data))))
        return torch.nn.functional.cross_entropy(a @ b.T / 0.1, torch.arange(64))

    return model, step
