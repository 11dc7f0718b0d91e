"""NeRF's ray marching: densities by softplus, transmittance by a cumulative product of 1 - alpha, colours by a
weighted sum."""

import torch


def render(density, colour, delta):
    alpha = 1 - torch.exp(-density * delta)
    clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
    weights = alpha * clear
    return (weights[..., None] * colour).sum(1), (weights * torch.linspace(0, 1, weights.shape[1])).sum(1)


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(12, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))

    def step(i):
        data = torch.Generator().manual_seed(i)
        out = model(torch.randn(64, 48, 12, generator=data))
        colour, depth = render(torch.nn.functional.softplus(5 * out[..., 0] - 1), torch.sigmoid(out[..., 1:]), 0.2)
        return (colour - torch.rand(64, 3, generator=data)).square().mean() + 0.1 * (1 / (depth + 0.05)).mean()

    return model, step
