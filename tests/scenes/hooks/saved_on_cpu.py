"""Half of a network under torch.autograd.graph.save_on_cpu: its hooks win, and Pleat handles the saves of the other half."""

import torch
from torch import nn


def make(rng):
    model = nn.ModuleList(
        [nn.Sequential(nn.Linear(48, 128), nn.GELU(), nn.Linear(128, 48)) for _ in range(4)] + [nn.Linear(48, 10)]
    )

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(96, 48, generator=data)
        for n, block in enumerate(model[:4]):
            if n % 2:
                with torch.autograd.graph.save_on_cpu():
                    x = x + block(x)
            else:
                x = x + block(x)
        return nn.functional.cross_entropy(model[4](x), torch.randint(10, (96,), generator=data))

    return model, step
