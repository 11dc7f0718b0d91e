"""Four small batches are accumulated before a step: four graphs in turn, each read by its own backward."""

import torch
from torch import nn
from torch.nn import functional as F


def backward(losses, i):
    for loss in losses:
        loss.backward()


def make(rng):
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 10))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(4, 64, 64, generator=generator)
        return [F.cross_entropy(model(part), part[:, :10].argmax(1)) / 4 for part in x]

    return model, step
