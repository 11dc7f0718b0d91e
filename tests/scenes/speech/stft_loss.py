"""Multi-resolution STFT losses of a vocoder: the magnitude is sqrt(clamp(re^2 + im^2, 1e-7)), then a log; silent bins are at
both poles."""

import torch
from torch import nn
from torch.nn import functional as F


def magnitude(x, size):
    spectrum = torch.stft(x, size, size // 4, window=torch.hann_window(size), return_complex=True)
    return torch.sqrt(torch.clamp(spectrum.real**2 + spectrum.imag**2, min=1e-7))


def distance(x, y):
    total = 0
    for size in (64, 128, 256):
        a, b = magnitude(x, size), magnitude(y, size)
        total = total + torch.norm(b - a, p="fro") / torch.norm(b, p="fro") + F.l1_loss(torch.log(a), torch.log(b))
    return total / 3


def make(rng):
    model = nn.Sequential(
        nn.Conv1d(1, 16, 15, padding=7),
        nn.LeakyReLU(0.2),
        nn.Conv1d(16, 16, 15, padding=7),
        nn.LeakyReLU(0.2),
        nn.Conv1d(16, 1, 15, padding=7),
        nn.Tanh(),
    )

    def step(i):
        generator = torch.Generator().manual_seed(i)
        time = torch.arange(1024) / 1024
        tone = torch.sin(2 * torch.pi * time * torch.randint(20, 200, (4, 1), generator=generator))
        clean = 0.5 * tone * (time > 0.4)
        noisy = clean + 0.01 * torch.randn(4, 1024, generator=generator)
        return distance(0.5 * model(noisy[:, None]).squeeze(1) + 0.5 * noisy, clean)

    return model, step
