"""mse_loss by hand of elements of size 3 that differ by 0.01: the square saves the difference, which no noise of 3
may meet."""

import torch

RESIDUAL = 0.01


def loss_of(out, size, data):
    target = size + RESIDUAL * torch.randn(32, 256, generator=data)
    return torch.nn.functional.mse_loss(out, target) + (out - target).square().mean() + ((out - target) ** 2).mean()


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(16, 48), torch.nn.Tanh(), torch.nn.Linear(48, 256))

    def step(i):
        data = torch.Generator().manual_seed(i)
        out = model(torch.randn(32, 16, generator=data))
        size = 3 * torch.randn(32, 256, generator=data)
        return loss_of(out - out.detach() + size, size, data)

    return model, step
