"""sigmoid, then a sort and a slice, then log: hard example mining takes the logarithm of the lowest probabilities."""

import torch


def loss_of(logits):
    p = torch.sigmoid(logits)
    return -torch.log(p.sort(-1).values[:, :64] + 1e-8).mean()


def make(rng):
    model = torch.nn.Linear(48, 192)

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(32, 48, generator=data)
        return loss_of(6 * model(x) - 3)

    return model, step
