"""A coordinate network that has nearly fitted an image: its mean squared error is a small difference of its saves."""

import torch

OPTIMISER = lambda parameters: torch.optim.Adam(parameters, 1e-4)


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3)
    )
    grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij"), -1).reshape(
        -1, 2
    )
    image = (model(grid).detach() + 2 + 0.02 * torch.randn(1024, 3, generator=rng)).sigmoid()

    def step(i):
        return torch.nn.functional.mse_loss(torch.sigmoid(model(grid) + 2), image)

    return model, step
