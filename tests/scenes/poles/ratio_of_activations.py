"""A weighted mean by hand, sum(w v) / sum(w) with softplus weights of which most are near 0: a divisor made of
activations."""

import torch


def weighted(scores, values):
    weights = torch.nn.functional.softplus(scores) + 1e-6
    return (weights * values).sum(-1) / weights.sum(-1)


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.ReLU(), torch.nn.Linear(64, 192))

    def step(i):
        data = torch.Generator().manual_seed(i)
        scores, values = model(torch.randn(96, 24, generator=data)).chunk(2, -1)
        return (weighted(10 * scores - 5, values) - torch.randn(96, generator=data)).square().mean()

    return model, step
