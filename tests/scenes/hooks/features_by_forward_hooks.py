"""Forward hooks gather a network's features, and a second loss takes the logarithm of their deviations after the
whole forward."""

import torch
from torch import nn


def make(rng):
    model = nn.Sequential(nn.Linear(48, 96), nn.Sigmoid(), nn.Linear(96, 96), nn.Sigmoid(), nn.Linear(96, 10))
    gathered = []
    for module in model:
        if isinstance(module, nn.Sigmoid):
            module.register_forward_hook(lambda module, args, out: gathered.append(out))

    def step(i):
        data = torch.Generator().manual_seed(i)
        gathered.clear()
        out = model(3 * torch.randn(96, 48, generator=data))
        loss = nn.functional.cross_entropy(out, torch.randint(10, (96,), generator=data))
        extra = sum(-torch.log(feature.var(0) + 1e-4).mean() - torch.log(feature + 1e-3).mean() for feature in gathered)
        gathered.clear()
        return loss + 0.05 * extra

    return model, step
