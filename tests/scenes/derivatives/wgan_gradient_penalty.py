"""WGAN-GP's penalty on the norm of the critic's gradient at points between real and generated data."""

import torch
from torch import nn

VALUES = True


def make(rng):
    model = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(512, 1),
    )

    def step(i):
        data = torch.Generator().manual_seed(i)
        real, fake = torch.randn(8, 1, 16, 16, generator=data), torch.rand(8, 1, 16, 16, generator=data)
        share = torch.rand(8, 1, 1, 1, generator=data)
        between = (share * real + (1 - share) * fake).requires_grad_()
        slope = torch.autograd.grad(model(between).sum(), between, create_graph=True)[0]
        norm = slope.flatten(1).norm(2, dim=1)
        return model(fake).mean() - model(real).mean() + 10 * (norm - 1).square().mean(), [norm]

    return model, step
