"""A Gaussian process on features of a network (deep kernel learning): the noise of a kernel's factor enters the network."""

import torch

OPTIMISER = lambda parameters: torch.optim.Adam(parameters, 1e-2)


def loss_of(features, y, noise):
    covariance = torch.exp(-0.5 * torch.cdist(features, features).square()) + noise * torch.eye(len(y))
    mean, log_determinant = torch.linalg.solve(covariance, y), torch.logdet(covariance)
    return (y @ mean + log_determinant) / len(y)


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(8, 48), torch.nn.ReLU(), torch.nn.Linear(48, 4))
    model.noise = torch.nn.Parameter(torch.tensor(-3.0))

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(96, 8, generator=data)
        return loss_of(3 * model(x), torch.sin(x[:, 0]), torch.exp(model.noise))

    return model, step
