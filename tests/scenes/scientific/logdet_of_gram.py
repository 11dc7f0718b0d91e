"""logdet(X^T X + eps) of a network's features (volume maximisation, MCR2): the gradient is an inverse times X."""

import torch


def coding_rate(z):
    z = torch.nn.functional.normalize(z, dim=-1)
    return 0.5 * torch.logdet(torch.eye(z.shape[1]) + z.shape[1] / (len(z) * 0.01) * z.T @ z)


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(24, 96), torch.nn.ReLU(), torch.nn.Linear(96, 48))

    def step(i):
        data = torch.Generator().manual_seed(i)
        z = model(torch.randn(128, 24, generator=data))
        return sum(coding_rate(part) for part in z.chunk(2)) / 2 - coding_rate(z)

    return model, step
