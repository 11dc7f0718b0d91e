"""A probability to a power below 1 (a contrast or gamma curve): the slope at 0 is unbounded."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.ReLU(), torch.nn.Linear(64, 192))
    model.gamma = torch.nn.Parameter(torch.tensor(0.45))

    def step(i):
        data = torch.Generator().manual_seed(i)
        p = torch.sigmoid(8 * model(torch.randn(64, 24, generator=data)) - 4)
        return (p.pow(model.gamma) - torch.rand(64, 192, generator=data)).square().mean()

    return model, step
