"""Prediction of the velocity with a signal-to-noise weight a step: the weights of the elements differ by hundreds."""

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scale_shift = nn.Linear(32, 2 * width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, time):
        scale, shift = self.scale_shift(time).chunk(2, dim=-1)
        return x + self.down(F.silu(self.up(self.norm(x) * (1 + scale) + shift)))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
        self.first, self.last = nn.Linear(48, 96), nn.Linear(96, 48)
        self.blocks = nn.ModuleList(Residual(96) for _ in range(3))

    def forward(self, x, t):
        time, hidden = self.time(t), self.first(x)
        for block in self.blocks:
            hidden = block(hidden, time)
        return self.last(hidden)


def make(rng):
    model = Denoiser()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.tanh(torch.randn(128, 6, generator=generator) @ torch.randn(6, 48, generator=generator))
        noise = torch.randn(x.shape, generator=generator)
        t = torch.rand(len(x), 1, generator=generator) * 0.96 + 0.02
        alpha, sigma = torch.cos(t * torch.pi / 2), torch.sin(t * torch.pi / 2)
        velocity = alpha * noise - sigma * x
        weight = (alpha / sigma).square().clamp(max=5.0) / ((alpha / sigma).square() + 1)
        return (weight * (model(alpha * x + sigma * noise, t) - velocity).square()).mean()

    return model, step
