"""SSIM by one constant 11 x 11 window of a blurred, a shifted or a noisy image: a variance is a small difference of two
large means, and a quotient follows."""

import torch
from torch import nn
from torch.nn import functional as F

LINE = torch.exp(-((torch.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
LINE = LINE / LINE.sum()


def mean(x):
    return F.conv2d(x, (LINE[:, None] * LINE).expand(x.shape[1], 1, 11, 11), groups=x.shape[1])


def ssim(x, y):
    mean_x, mean_y = mean(x), mean(y)
    var_x, var_y = mean(x * x) - mean_x**2, mean(y * y) - mean_y**2
    both = mean(x * y) - mean_x * mean_y
    light = (2 * mean_x * mean_y + 1e-4) / (mean_x**2 + mean_y**2 + 1e-4)
    return (light * (2 * both + 9e-4) / (var_x + var_y + 9e-4)).mean()


def make(rng):
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        smooth = F.interpolate(torch.rand(2, 3, 6, 6, generator=generator), size=32, mode="bicubic").clamp(0, 1)
        clean = smooth * 0.6 + 0.3
        kinds = [F.avg_pool2d(clean, 5, 1, 2, count_include_pad=False), clean.roll(1, 3), clean + 0.02 * torch.randn(clean.shape, generator=generator)]
        given = kinds[i % 3]
        return 1 - ssim(given + 0.1 * model(given), clean)

    return model, step
