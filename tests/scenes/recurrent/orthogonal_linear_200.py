"""The orthogonal parametrisation alone: a linear recurrence of 200 steps, h W^T + x, with one weight that is computed."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import orthogonal
from torch.nn.utils.parametrize import cached


def make(rng):
    model = nn.ModuleDict({"input": nn.Linear(4, 48), "hidden": orthogonal(nn.Linear(48, 48, bias=False)), "head": nn.Linear(48, 8)})

    def step(i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(8, (16,), generator=generator)
        x = 0.05 * torch.randn(200, 16, 4, generator=generator)
        x[0] += label[:, None] - 3.5
        with cached():
            h = torch.zeros(16, 48)
            for value in x:
                h = model["hidden"](h) + model["input"](value)
        return F.cross_entropy(model["head"](h / 4), label)

    return model, step
