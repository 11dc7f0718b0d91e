"""Sliced score matching: a directional second derivative of a learned density, v^T (ds/dx) v + (v^T s)^2 / 2."""

import torch

VALUES = True


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 96),
        torch.nn.Softplus(),
        torch.nn.Linear(96, 96),
        torch.nn.Softplus(),
        torch.nn.Linear(96, 16),
    )

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(96, 16, generator=data).requires_grad_()
        v = torch.randn(96, 16, generator=data)
        score = model(x)
        along = (score * v).sum()
        curvature = (torch.autograd.grad(along, x, create_graph=True)[0] * v).sum(-1)
        return (curvature + 0.5 * (score * v).sum(-1).square()).mean(), [curvature]

    return model, step
