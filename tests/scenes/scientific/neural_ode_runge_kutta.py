"""A neural ODE through eight Runge-Kutta steps, recorded: a network's activations are read 32 times, with its
weights."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(8, 48), torch.nn.Tanh(), torch.nn.Linear(48, 8))

    def step(i):
        data = torch.Generator().manual_seed(i)
        y, wanted, h = torch.randn(48, 8, generator=data), torch.randn(48, 8, generator=data), 0.125
        for _ in range(8):
            k1 = model(y)
            k2 = model(y + h / 2 * k1)
            k3 = model(y + h / 2 * k2)
            k4 = model(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return (y - wanted).square().mean()

    return model, step
