"""sigmoid, then a scatter into bins, then log: a soft histogram reaches a logarithm."""

import torch


def loss_of(logits):
    p = torch.sigmoid(logits)
    return -torch.log(torch.zeros(32, 48).scatter_add(1, (torch.arange(192) % 48).expand(32, 192), p / 4) + 1e-8).mean()


def make(rng):
    model = torch.nn.Linear(48, 192)

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(32, 48, generator=data)
        return loss_of(6 * model(x) - 3)

    return model, step
