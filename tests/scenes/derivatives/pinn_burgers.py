"""Burgers' equation in space and time: derivatives of a sine network multiply its own values."""

import torch

VALUES = True


class Sine(torch.nn.Module):
    def forward(self, x):
        return torch.sin(2 * x)


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(2, 64), Sine(), torch.nn.Linear(64, 64), Sine(), torch.nn.Linear(64, 1))

    def step(i):
        points = (2 * torch.rand(96, 2, generator=torch.Generator().manual_seed(i)) - 1).requires_grad_()
        u = model(points)
        du = torch.autograd.grad(u, points, torch.ones_like(u), create_graph=True)[0]
        u_t, u_x = du[:, :1], du[:, 1:]
        u_xx = torch.autograd.grad(u_x, points, torch.ones_like(u_x), create_graph=True)[0][:, 1:]
        return (u_t + u * u_x - 0.01 * u_xx).square().mean(), [u_t, u_x, u_xx]

    return model, step
