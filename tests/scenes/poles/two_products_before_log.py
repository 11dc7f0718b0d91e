"""Products of probabilities in four stages before a logarithm (a decision tree's soft routes)."""

import torch


def leaves_of(p):
    route = torch.ones(p.shape[0], 1)
    for depth in range(5):
        first = 2**depth - 1
        right = p[:, first : first + 2**depth]
        route = torch.stack([route * (1 - right), route * right], -1).flatten(1)
    return route


def make(rng):
    model = torch.nn.Linear(24, 31)
    leaf = torch.nn.Parameter(torch.randn(32, 8, generator=rng))
    model.leaf = leaf

    def step(i):
        data = torch.Generator().manual_seed(i)
        target = torch.randint(8, (128, 1), generator=data)
        route = leaves_of(torch.sigmoid(3 * model(torch.randn(128, 24, generator=data))))
        return -torch.log((route @ torch.softmax(leaf, -1)).gather(1, target) + 1e-8).mean()

    return model, step
