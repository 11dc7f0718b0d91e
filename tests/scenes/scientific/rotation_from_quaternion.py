"""Rotations by normalised quaternions and a Kabsch alignment by svd: the loss is the remainder after the best rotation."""

import torch


def align(a, b):
    u, _, v = torch.linalg.svd(a.transpose(1, 2) @ b)
    sign = torch.det(u @ v).sign()
    u = torch.cat([u[..., :2], u[..., 2:] * sign[:, None, None]], -1)
    return (a @ u @ v - b).square().sum(-1).add(1e-8).sqrt().mean()


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 60))

    def step(i):
        data = torch.Generator().manual_seed(i)
        points = model(torch.randn(32, 16, generator=data)).view(32, 20, 3)
        return align(points, points.detach().roll(1, 1) + 0.1 * torch.randn(32, 20, 3, generator=data))

    return model, step
