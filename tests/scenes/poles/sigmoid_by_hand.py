"""A sigmoid written as e / (1 + e): the divisor is no sum over many, and two terms of the gradient cancel."""

import torch


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(48, 192), torch.nn.Linear(192, 10)])

    def step(i):
        data = torch.Generator().manual_seed(i)
        u = model[0](torch.randn(128, 48, generator=data))
        target = torch.randint(10, (128,), generator=data)
        e = torch.exp(5 * u)
        return torch.nn.functional.cross_entropy(model[1](e / (1 + e)), target)

    return model, step
