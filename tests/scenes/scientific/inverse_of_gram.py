"""inv(x x^T + I) of features: noise in the inverse is multiplied by the inverse on both sides."""

import torch


def leverage(x):
    inverse = torch.linalg.inv(x @ x.T + torch.eye(len(x)))
    return (inverse @ x).square().sum() + inverse.diagonal().log().mean()


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 96))

    def step(i):
        return leverage(model(torch.randn(64, 16, generator=torch.Generator().manual_seed(i))))

    return model, step
