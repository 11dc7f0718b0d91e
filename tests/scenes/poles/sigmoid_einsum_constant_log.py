"""sigmoid, then an einsum with a constant matrix, then log: class probabilities are summed by groups."""

import torch

GROUPS = (torch.arange(192)[:, None] // 4 == torch.arange(48)).float()


def loss_of(logits):
    p = torch.sigmoid(logits)
    return -torch.log(torch.einsum("nc,cg->ng", p / 4, GROUPS) + 1e-8).mean()


def make(rng):
    model = torch.nn.Linear(48, 192)

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(32, 48, generator=data)
        return loss_of(6 * model(x) - 3)

    return model, step
