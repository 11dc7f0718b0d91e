"""RealNVP as Glow writes it: the scale is a sigmoid, and the log of the very sigmoid is the log-determinant; actnorm
divides and a 1 x 1 convolution adds slogdet of its weight."""

import torch
from torch import nn


class Step(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.log_scale, self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1)), nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.mix = nn.Parameter(torch.linalg.qr(torch.randn(channels, channels))[0])
        half = channels // 2
        self.net = nn.Sequential(
            nn.Conv2d(half, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 1), nn.ReLU(), nn.Conv2d(32, channels, 3, padding=1)
        )
        with torch.no_grad():
            self.net[4].weight.mul_(8)

    def forward(self, x):
        pixels = x.shape[2] * x.shape[3]
        x = (x + self.bias) * torch.exp(self.log_scale)
        x = torch.nn.functional.conv2d(x, self.mix[:, :, None, None])
        log_determinant = pixels * (self.log_scale.sum() + torch.linalg.slogdet(self.mix)[1])
        a, b = x.chunk(2, dim=1)
        shift, raw = self.net(a).chunk(2, dim=1)
        scale = torch.sigmoid(raw + 2)
        b = (b + shift) * scale
        return torch.cat([a, b], dim=1), log_determinant + torch.log(scale).flatten(1).sum(1)


def make(rng):
    model = nn.ModuleList(Step(8) for _ in range(3))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(16, 8, 1, 1, generator=generator) + 0.5 * torch.randn(16, 8, 8, 8, generator=generator)
        total = torch.zeros(len(x))
        for layer in model:
            x, change = layer(x)
            total = total + change
        return (0.5 * x.square().flatten(1).sum(1) - total).mean() / 512

    return model, step
