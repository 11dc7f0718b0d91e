"""The kernel distance of two samples: exponentials of squared distances, of which near pairs count most."""

import torch


def kernel(x, y):
    distance = (x.unsqueeze(1) - y.unsqueeze(0)).pow(2).sum(-1)
    return sum(torch.exp(-distance / (2 * s)) for s in (0.5, 2.0, 8.0)).mean()


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 12))

    def step(i):
        data = torch.Generator().manual_seed(i)
        x, y = 3 * model(torch.randn(48, 16, generator=data)), torch.randn(48, 12, generator=data)
        return kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)

    return model, step
