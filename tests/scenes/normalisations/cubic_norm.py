"""A row times an inverse root of the sum of its cubes."""

import torch


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(48, 96, bias=False), torch.nn.Linear(96, 10)])
    sizes = torch.full((128, 1), 1e-3)
    sizes[::8] = 1  # rows of unlike sizes share groups

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = model[0](torch.randn(128, 48, generator=data) * sizes)
        y = x * ((x.abs() ** 3).sum(-1, keepdim=True) + 1e-14) ** (-1 / 3)
        return torch.nn.functional.cross_entropy(model[1](y), torch.randint(10, (128,), generator=data))

    return model, step
