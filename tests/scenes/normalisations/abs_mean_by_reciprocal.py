"""A row times the reciprocal of its mean size: an inverse of its own sum that Pleat does not recognise."""

import torch


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(48, 96, bias=False), torch.nn.Linear(96, 10)])
    sizes = torch.full((128, 1), 1e-3)
    sizes[::8] = 1  # rows of unlike sizes share groups

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = model[0](torch.randn(128, 48, generator=data) * sizes)
        y = x * x.abs().mean(-1, keepdim=True).reciprocal()
        return torch.nn.functional.cross_entropy(model[1](y), torch.randint(10, (128,), generator=data))

    return model, step
