"""Unsupervised optical flow: images warped by predicted flow, a census distance d^2 / (0.1 + d^2), a robust photometric
loss (|d| + 0.01)^0.4, and smoothness weighed by exp(-|gradient|)."""

import torch
from torch import nn
from torch.nn import functional as F


def census(x, y):
    patches_x, patches_y = (F.unfold(F.pad(t, (1, 1, 1, 1), mode="reflect"), 3) - t.flatten(2) for t in (x, y))
    patches_x, patches_y = patches_x / torch.sqrt(0.01 + patches_x**2), patches_y / torch.sqrt(0.01 + patches_y**2)
    distance = (patches_x - patches_y) ** 2
    return (distance / (0.1 + distance)).sum(1)


def make(rng):
    model = nn.Sequential(nn.Conv2d(2, 24, 5, padding=2), nn.LeakyReLU(0.1), nn.Conv2d(24, 24, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(24, 2, 3, padding=1))
    lines = torch.linspace(-1, 1, 24)
    grid = torch.stack(torch.meshgrid(lines, lines, indexing="xy"), dim=-1)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        first = F.interpolate(torch.rand(6, 1, 8, 8, generator=generator), size=24, mode="bicubic")
        second = first.roll(1, 3)
        flow = model(torch.cat([first, second], dim=1))
        warped = F.grid_sample(second, grid + 0.2 * flow.permute(0, 2, 3, 1), align_corners=True, padding_mode="border")
        photometric = ((first - warped).abs() + 0.01).pow(0.4).mean() + (census(first, warped) + 0.01).pow(0.4).mean()
        edges = torch.exp(-10 * first.diff(dim=3).abs())
        return photometric + 0.1 * (edges * flow.diff(dim=3).abs()).mean()

    return model, step
