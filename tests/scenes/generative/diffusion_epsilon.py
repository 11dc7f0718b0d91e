"""A U-Net with time embeddings predicts the noise: group norms, SiLU, skip connections and additions of the time."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, inputs, outputs, time):
        super().__init__()
        self.first_norm, self.second_norm = nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)
        self.first, self.second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        hidden = self.first(F.silu(self.first_norm(x)))
        hidden = hidden + self.time(F.silu(time))[:, :, None, None]
        return self.second(F.silu(self.second_norm(hidden))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.down, self.middle, self.up = Block(16, 16, 32), Block(16, 32, 32), Block(48, 16, 32)
        self.norm, self.last = nn.GroupNorm(4, 16), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x, t):
        frequencies = torch.exp(-math.log(10000) * torch.arange(8) / 8)
        angles = t[:, None] * frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        down = self.down(self.first(x), time)
        middle = self.middle(F.avg_pool2d(down, 2), time)
        up = self.up(torch.cat([F.interpolate(middle, scale_factor=2, mode="nearest"), down], dim=1), time)
        return self.last(F.silu(self.norm(up)))


def make(rng):
    model = UNet()
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), dim=0)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = F.interpolate(torch.randn(6, 3, 4, 4, generator=generator), size=16, mode="bilinear")
        noise = torch.randn(x.shape, generator=generator)
        t = torch.randint(1000, (len(x),), generator=generator)
        share = kept[t][:, None, None, None]
        return F.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * noise, t.float()), noise)

    return model, step
