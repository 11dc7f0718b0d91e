"""checkpoint_sequential over a convolutional network, reentrant, with batch norm and dropout: random state is put
back within."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


def make(rng):
    body = nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(),
        nn.Dropout(0.2), nn.Conv2d(16, 8, 3, padding=1),
    )  # fmt: skip
    model = nn.ModuleList([nn.Conv2d(3, 8, 3), body, nn.Linear(8, 10)])

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = model[0](torch.randn(4, 3, 14, 14, generator=data))
        x = checkpoint_sequential(body, 2, x, use_reentrant=True)
        return nn.functional.cross_entropy(model[2](x.mean([2, 3])), torch.randint(10, (4,), generator=data))

    return model, step
