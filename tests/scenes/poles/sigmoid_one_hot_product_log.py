"""sigmoid, then a product with a one-hot matrix, then log: the probability of the target is picked by a product and a
sum."""

import torch


def loss_of(logits, target):
    p = torch.sigmoid(logits)
    return -torch.log((p * torch.nn.functional.one_hot(target, 192)).sum(-1) + 1e-8).mean()


def make(rng):
    model = torch.nn.Linear(48, 192)

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(32, 48, generator=data)
        target = torch.randint(192, (32,), generator=data)
        return loss_of(6 * model(x) - 3, target)

    return model, step
