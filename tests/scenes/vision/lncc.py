"""Registration: a network's displacement warps the moving image, and local normalised cross-correlation over windows of 9
divides a small covariance by two small variances."""

import torch
from torch import nn
from torch.nn import functional as F


def correlation(a, b, window=9):
    ones = torch.ones(1, 1, window, window)
    sums = [F.conv2d(t, ones, padding=window // 2) for t in (a, b, a * a, b * b, a * b)]
    size = window * window
    mean_a, mean_b = sums[0] / size, sums[1] / size
    cross = sums[4] - mean_b * sums[0] - mean_a * sums[1] + mean_a * mean_b * size
    var_a = sums[2] - 2 * mean_a * sums[0] + mean_a * mean_a * size
    var_b = sums[3] - 2 * mean_b * sums[1] + mean_b * mean_b * size
    return (cross * cross / (var_a * var_b + 1e-5)).mean()


def make(rng):
    model = nn.Sequential(
        nn.Conv2d(2, 16, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(16, 16, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(16, 2, 3, padding=1)
    )
    lines = torch.linspace(-1, 1, 32)
    grid = torch.stack(torch.meshgrid(lines, lines, indexing="xy"), dim=-1)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        fixed = 0.3 * F.interpolate(torch.rand(4, 1, 6, 6, generator=generator), size=32, mode="bicubic") + 0.6
        moving = fixed.roll(2, 3)
        flow = model(torch.cat([moving, fixed], dim=1))
        warped = F.grid_sample(moving, grid + 0.1 * flow.permute(0, 2, 3, 1), align_corners=True, padding_mode="border")
        smooth = flow.diff(dim=2).square().mean() + flow.diff(dim=3).square().mean()
        return -correlation(fixed, warped) + 0.1 * smooth

    return model, step
