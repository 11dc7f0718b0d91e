"""A Gaussian likelihood by the Cholesky factor of a covariance whose scales differ by 1e4."""

import torch


def nll(features, weights):
    centred = features - features.mean(0)
    covariance = centred.T @ centred / len(features) + 1e-4 * torch.eye(features.shape[1])
    factor = torch.linalg.cholesky(covariance)
    whitened = torch.linalg.solve_triangular(factor, centred.T, upper=False)
    return factor.diagonal().log().sum() + (whitened.T @ weights).square().mean()


def make(rng):
    model = torch.nn.Linear(24, 48)
    scale = torch.logspace(-2, 2, 48)[torch.randperm(48, generator=rng)]
    weights = torch.randn(48, 4, generator=rng)

    def step(i):
        return nll(model(torch.randn(160, 24, generator=torch.Generator().manual_seed(i))) * scale, weights)

    return model, step
