"""A post-norm encoder without biases classifies sequences that are padded with zeros, two of them empty: it normalises rows of
zeros, and the gradient of such a row is 1 / sqrt(eps) times the others'. A few rows make the gradient, so noise is hardly
averaged: 0.23 to 0.36 by the seed, as in operands."""

import torch
from torch import nn
from torch.nn import functional as F

BAR = 0.45

def make(rng):
    layers = (nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0, batch_first=True, bias=False) for _ in range(2))
    model = nn.Sequential(nn.Linear(12, 24, bias=False), *layers, nn.Linear(24, 8))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(8, (16,), generator=generator)
        lengths = torch.randint(8, 32, (16, 1), generator=generator)
        lengths[[3, 11]] = 0
        waves = torch.sin((label[:, None, None] + 1) * torch.arange(32)[:, None] / 8 + torch.arange(12))
        x = (waves + 0.3 * torch.randn(16, 32, 12, generator=generator)) * (torch.arange(32) < lengths)[..., None]
        return F.cross_entropy(model(x).mean(1), label)

    return model, step
