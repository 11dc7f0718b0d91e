"""sigmoid, then a sparse matrix product, then log: the probabilities of a graph's nodes are averaged over
neighbours."""

import torch

NEIGHBOURS = (torch.eye(32) + torch.eye(32).roll(1, 0)).mul(0.5).to_sparse()


def loss_of(logits):
    p = torch.sigmoid(logits)
    return -torch.log(torch.sparse.mm(NEIGHBOURS, p) + 1e-8).mean()


def make(rng):
    model = torch.nn.Linear(48, 192)

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(32, 48, generator=data)
        return loss_of(6 * model(x) - 3)

    return model, step
