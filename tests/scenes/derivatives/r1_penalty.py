"""StyleGAN's R1 penalty, lazily every second step: a step with create_graph follows one without."""

import torch
from torch import nn

VALUES = True


def make(rng):
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(512, 1),
    )

    def step(i):
        data = torch.Generator().manual_seed(i)
        real = torch.randn(8, 3, 16, 16, generator=data).requires_grad_(i % 2 == 0)
        score = model(real)
        loss = (
            nn.functional.softplus(-score).mean()
            + nn.functional.softplus(model(torch.rand(8, 3, 16, 16, generator=data))).mean()
        )
        if i % 2:
            return loss, []
        slope = torch.autograd.grad(score.sum(), real, create_graph=True)[0]
        penalty = slope.square().sum([1, 2, 3])
        return loss + 5 * penalty.mean(), [penalty]

    return model, step
