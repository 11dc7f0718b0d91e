"""A plain ReLU network: only the side of 0 of a ReLU's result is read, and the linear layer reads its values."""

import torch


def make(rng):
    sizes = [64, 256, 256, 128, 10]
    layers = [layer for a, b in zip(sizes, sizes[1:]) for layer in (torch.nn.Linear(a, b), torch.nn.ReLU())][:-1]
    model = torch.nn.Sequential(*layers)

    def step(i):
        data = torch.Generator().manual_seed(i)
        target = torch.randint(10, (128,), generator=data)
        return torch.nn.functional.cross_entropy(model(torch.randn(128, 64, generator=data)), target)

    return model, step
