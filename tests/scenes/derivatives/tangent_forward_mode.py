"""Forward-mode derivatives (jvp) of a network in its input, trained through reverse mode: a Hamiltonian's flow
field."""

import torch
from torch.func import jvp

VALUES = True


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Linear(12, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)
    )

    def step(i):
        data = torch.Generator().manual_seed(i)
        x, v = torch.randn(96, 12, generator=data), torch.randn(96, 12, generator=data)
        _, along = jvp(model, (x,), (v,))
        return (along - v[:, :1]).square().mean(), [along]

    return model, step
