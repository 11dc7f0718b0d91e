"""Cumulative logits: the probability of a class is the difference of two sigmoids, and its logarithm is the loss."""

import torch


def nll(score, cuts, target):
    at_most = torch.sigmoid(cuts - score)
    edges = torch.cat([torch.zeros_like(at_most[:, :1]), at_most, torch.ones_like(at_most[:, :1])], -1)
    return -torch.log((edges[:, 1:] - edges[:, :-1]).gather(1, target[:, None]) + 1e-7).mean()


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model.register_parameter("cuts", torch.nn.Parameter(torch.linspace(-3, 3, 63)))

    def step(i):
        data = torch.Generator().manual_seed(i)
        score = 6 * model(torch.randn(128, 24, generator=data))
        return nll(score, model.cuts, torch.randint(64, (128,), generator=data))

    return model, step
