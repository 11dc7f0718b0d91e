"""A layer reads p + eps, then a logarithm does. The constant makes it no residual stream. In the first step the pole comes too late."""

import torch

FIRST = 1


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(48, 192), torch.nn.Linear(192, 10)])

    def step(i):
        data = torch.Generator().manual_seed(i)
        u = model[0](torch.randn(128, 48, generator=data))
        target = torch.randint(10, (128,), generator=data)
        y = torch.sigmoid(6 * u - 3) + 1e-8
        loss = torch.nn.functional.cross_entropy(model[1](y), target)
        return loss - torch.log(y).mean()

    return model, step
