"""Angles by acos of a cosine near 1, clamped inside: the slope of acos has a pole at the bound."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(24, 96), torch.nn.ReLU(), torch.nn.Linear(96, 48))

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(96, 24, generator=data)
        a = torch.nn.functional.normalize(model(x), dim=-1)
        b = torch.nn.functional.normalize(model(x + 0.1 * torch.randn(96, 24, generator=data)), dim=-1)
        return torch.acos((a * b).sum(-1).clamp(-1 + 1e-6, 1 - 1e-6)).mean()

    return model, step
