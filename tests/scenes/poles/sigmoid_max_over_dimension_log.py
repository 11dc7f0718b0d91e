"""sigmoid, then a maximum over a dimension, then log: multiple-instance learning takes the logarithm of the best
instance."""

import torch


def loss_of(logits):
    p = torch.sigmoid(logits)
    return -torch.log(p.view(32, 24, 8).max(-1).values + 1e-8).mean()


def make(rng):
    model = torch.nn.Linear(48, 192)

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(32, 48, generator=data)
        return loss_of(6 * model(x) - 3)

    return model, step
