"""A Hamiltonian network: the time derivative is a rotated gradient of its energy, rolled out for three leapfrog
steps."""

import torch

VALUES = True


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)
    )

    def flow(state):
        slope = torch.autograd.grad(model(state).sum(), state, create_graph=True)[0]
        dq, dp = slope.chunk(2, -1)
        return torch.cat([dp, -dq], -1)

    def step(i):
        data = torch.Generator().manual_seed(i)
        state = torch.randn(64, 8, generator=data).requires_grad_()
        wanted = torch.randn(64, 8, generator=data)
        path = state
        for _ in range(3):
            path = path + 0.1 * flow(path)
        return (path - wanted).square().mean(), [path]

    return model, step
