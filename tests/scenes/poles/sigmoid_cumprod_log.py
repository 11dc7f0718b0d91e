"""sigmoid, then a cumulative product, then log: a survival function by hazards reaches a logarithm."""

import torch


def loss_of(logits):
    p = torch.sigmoid(logits)
    return -torch.log(torch.cumprod(1 - p.view(32, 24, 8) ** 4, -1) + 1e-8).mean()


def make(rng):
    model = torch.nn.Linear(48, 192)

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(32, 48, generator=data)
        return loss_of(6 * model(x) - 3)

    return model, step
