"""A compiled block (aot_eager) between eager layers: its saves stay exact, theirs bear noise."""

import torch
from torch import nn


def make(rng):
    model = nn.ModuleList([nn.Linear(32, 96), nn.Linear(96, 96), nn.LayerNorm(96), nn.Linear(96, 10)])

    @torch.compile(backend="aot_eager")
    def block(x):
        return x + nn.functional.gelu(model[1](model[2](x)))

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.sigmoid(model[0](torch.randn(96, 32, generator=data)))
        return nn.functional.cross_entropy(model[3](torch.tanh(block(x))), torch.randint(10, (96,), generator=data))

    return model, step
