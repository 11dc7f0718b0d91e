"""ZCA whitening by eigh of a covariance (decorrelated batch norm, W-MSE): products with roots of inverse
eigenvalues."""

import torch


def whiten(x):
    x = x - x.mean(0)
    values, vectors = torch.linalg.eigh(x.T @ x / (len(x) - 1) + 1e-3 * torch.eye(x.shape[1]))
    return x @ (vectors * values.rsqrt()) @ vectors.T


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(24, 32), torch.nn.Linear(32, 8)])
    scale = torch.logspace(-1, 1, 32)

    def step(i):
        data = torch.Generator().manual_seed(i)
        white = whiten(model[0](torch.randn(128, 24, generator=data)) * scale)
        return (model[1](white) - torch.randn(128, 8, generator=data)).square().mean()

    return model, step
