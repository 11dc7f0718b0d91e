"""CREPE pads a short map by F.pad before a wide convolution: the taps that see only padding have a gradient of exactly zero, of
whose noise Adam would make full steps."""

import torch
from torch import nn
from torch.nn import functional as F

BAR, VALUES = 0.2, True
LEGS = {"2": "bits:2,min_bytes:0"}
LENGTH, TAPS = 6, 32


def make(rng):
    model = nn.Sequential(
        nn.Conv1d(1, 32, 16, stride=8), nn.Tanh(), nn.ConstantPad1d((15, 16), 0.0),
        nn.Conv1d(32, 48, TAPS), nn.Tanh(), nn.Flatten(), nn.Linear(48 * LENGTH, 10),
    )  # fmt: skip

    def step(i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(10, (16,), generator=generator)
        x = torch.sin((label[:, None, None] + 2) * torch.arange(56) / 9) + 0.2 * torch.randn(16, 1, 56, generator=generator)
        F.cross_entropy(model(x), label).backward()
        taps = model[3].weight.grad
        return None, [taps[..., : 16 - LENGTH], taps[..., 15 + LENGTH :]]

    return model, step
