"""sigmoid, then a matrix product with one-hot columns, then log: the probabilities of eight targets are picked by a
contraction."""

import torch


def loss_of(logits, target):
    p = torch.sigmoid(logits)
    return -torch.log(p @ torch.nn.functional.one_hot(target[:8], 192).float().T + 1e-8).mean()


def make(rng):
    model = torch.nn.Linear(48, 192)

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(32, 48, generator=data)
        target = torch.randint(192, (32,), generator=data)
        return loss_of(6 * model(x) - 3, target)

    return model, step
