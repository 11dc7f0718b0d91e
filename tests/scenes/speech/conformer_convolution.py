"""The convolution module of a conformer: a gated linear unit, a depthwise convolution, batch norm and SiLU between pointwise
layers."""

import torch
from torch import nn
from torch.nn import functional as F


class Module(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depthwise, self.batch_norm = nn.Conv1d(width, width, 15, padding=7, groups=width), nn.BatchNorm1d(width)

    def forward(self, x):
        hidden = F.glu(self.first(self.norm(x).transpose(1, 2)), dim=1)
        hidden = F.silu(self.batch_norm(self.depthwise(hidden)))
        return x + F.dropout(self.second(hidden).transpose(1, 2), 0.1)


def make(rng):
    model = nn.Sequential(nn.Linear(24, 48), Module(48), Module(48), nn.LayerNorm(48), nn.Linear(48, 28))
    sounds = torch.randn(28, 24, generator=rng)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(28, (6, 12), generator=generator).repeat_interleave(4, dim=1)
        x = sounds[label] + torch.randn(6, 48, 24, generator=generator)
        return F.cross_entropy(model(x).flatten(0, 1), label.flatten())

    return model, step
