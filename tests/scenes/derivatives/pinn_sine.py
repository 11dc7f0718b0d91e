"""A physics-informed network for u'' = -pi^2 sin(pi x): its residual is made of second derivatives, which no step
averages."""

import math

import torch

VALUES = True


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Linear(1, 48), torch.nn.Tanh(), torch.nn.Linear(48, 48), torch.nn.Tanh(), torch.nn.Linear(48, 1)
    )

    def step(i):
        x = torch.rand(128, 1, generator=torch.Generator().manual_seed(i)).requires_grad_()
        u = model(x)
        du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        d2u = torch.autograd.grad(du.sum(), x, create_graph=True)[0]
        residual = d2u + math.pi**2 * torch.sin(math.pi * x)
        return residual.square().mean() + u[:1].square().mean(), [du, d2u]

    return model, step
