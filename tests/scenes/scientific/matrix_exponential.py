"""A linear flow by the matrix exponential of an antisymmetric matrix (rotations, invertible convolutions)."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(16, 48), torch.nn.Tanh())
    model.raw = torch.nn.Parameter(0.1 * torch.randn(48, 48, generator=rng))

    def step(i):
        data = torch.Generator().manual_seed(i)
        rotation = torch.linalg.matrix_exp(model.raw - model.raw.T)
        hidden = model(torch.randn(96, 16, generator=data)) @ rotation
        return (hidden - torch.randn(96, 48, generator=data)).square().mean()

    return model, step
