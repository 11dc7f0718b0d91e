"""Hooks on tensors and parameters scale and clip gradients as they pass, and one divides by a gradient's norm."""

import torch
from torch import nn


def make(rng):
    model = nn.Sequential(nn.Linear(48, 128), nn.GELU(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 10))
    for parameter in model[0].parameters():
        parameter.register_hook(lambda g: g.clamp(-0.01, 0.01))

    def step(i):
        data = torch.Generator().manual_seed(i)
        hidden = model[1](model[0](torch.randn(96, 48, generator=data)))
        hidden.register_hook(lambda g: g / (g.norm() + 1e-6))
        out = model[4](model[3](model[2](hidden)))
        return nn.functional.cross_entropy(out, torch.randint(10, (96,), generator=data))

    return model, step
