"""Dropout before a linear layer, with few rows: where it drops a unit in every row, the weights that read the unit have a
gradient of exactly zero."""

import torch
from torch import nn
from torch.nn import functional as F

BAR, VALUES = 0.2, True
LEGS = {"2": "bits:2,min_bytes:0"}


def make(rng):
    model = nn.ModuleList([nn.Linear(40, 384), nn.Linear(384, 64), nn.Linear(64, 10)])

    def forward(x):
        x = F.dropout(torch.tanh(model[0](x)), 0.5)
        return model[2](torch.tanh(model[1](x))), (x == 0).all(0)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(10, (4,), generator=generator)
        result, dropped = forward(label[:, None] / 5 - 1 + torch.randn(4, 40, generator=generator))
        F.cross_entropy(result, label).backward()
        return None, [model[1].weight.grad[:, dropped]]

    return model, step
