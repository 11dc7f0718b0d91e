"""A Gaussian process with a Matern 5/2 kernel in float32: distances, a root at 0 on the diagonal, a Cholesky factor,
log det."""

import math

import torch

OPTIMISER = lambda parameters: torch.optim.Adam(parameters, 1e-2)


def matern(x, y, length, scale):
    distance = torch.cdist(x / length, y / length).clamp_min(1e-15)
    root = math.sqrt(5) * distance
    return scale * (1 + root + root**2 / 3) * torch.exp(-root)


def negative_log_likelihood(x, y, length, scale, noise):
    covariance = matern(x, x, length, scale) + noise * torch.eye(len(x))
    factor = torch.linalg.cholesky(covariance)
    alpha = torch.cholesky_solve(y[:, None], factor).squeeze(1)
    return (0.5 * y @ alpha + factor.diagonal().log().sum()) / len(x)


def make(rng):
    raw = [
        torch.tensor(0.5).log().expand(3).clone().requires_grad_(),
        torch.zeros(()).requires_grad_(),
        torch.tensor(-4.0).requires_grad_(),
    ]

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.rand(200, 3, generator=data)
        y = torch.sin(6 * x[:, 0]) + x[:, 1] + 0.1 * torch.randn(200, generator=data)
        length, scale, noise = (torch.exp(leaf) for leaf in raw)
        return negative_log_likelihood(x, y, length, scale, noise)

    return raw, step
