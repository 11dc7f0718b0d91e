"""Separation as Conv-TasNet does it: global layer norms by hand, PReLUs, a sigmoid mask on the encoder's frames, and the
scale-invariant ratio with its log10."""

import torch
from torch import nn


class GlobalNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(1, channels, 1)), nn.Parameter(torch.zeros(1, channels, 1))

    def forward(self, x):
        mean = x.mean(dim=(1, 2), keepdim=True)
        variance = torch.pow(x - mean, 2).mean(dim=(1, 2), keepdim=True)
        return self.gain * (x - mean) / torch.pow(variance + 1e-8, 0.5) + self.bias


class Block(nn.Module):
    def __init__(self, channels, wide, dilation):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(channels, wide, 1), nn.PReLU(), GlobalNorm(wide),
            nn.Conv1d(wide, wide, 3, padding=dilation, dilation=dilation, groups=wide), nn.PReLU(), GlobalNorm(wide), nn.Conv1d(wide, channels, 1),
        )  # fmt: skip

    def forward(self, x):
        return x + self.net(x)


class TasNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Conv1d(1, 48, 16, 8, bias=False), nn.ConvTranspose1d(48, 1, 16, 8, bias=False)
        self.separator = nn.Sequential(GlobalNorm(48), nn.Conv1d(48, 24, 1), Block(24, 48, 1), Block(24, 48, 2), nn.PReLU(), nn.Conv1d(24, 96, 1))

    def forward(self, x):
        frames = torch.relu(self.encoder(x[:, None]))
        masks = torch.sigmoid(self.separator(frames)).unflatten(1, (2, 48))
        return self.decoder((frames[:, None] * masks).flatten(0, 1)).view(len(x), 2, -1)


def ratio(estimate, target):
    estimate, target = estimate - estimate.mean(-1, keepdim=True), target - target.mean(-1, keepdim=True)
    part = (estimate * target).sum(-1, keepdim=True) / (target.pow(2).sum(-1, keepdim=True) + 1e-8) * target
    return 10 * torch.log10(part.pow(2).sum(-1) / ((estimate - part).pow(2).sum(-1) + 1e-8) + 1e-8)


def make(rng):
    model = TasNet()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        time = torch.arange(512) / 512
        speed = torch.randint(10, 30, (4, 1), generator=generator), torch.randint(80, 160, (4, 1), generator=generator)
        sources = torch.stack([torch.sin(2 * torch.pi * time * s) for s in speed], dim=1)
        return -ratio(model(sources.sum(1)), sources).mean()

    return model, step
