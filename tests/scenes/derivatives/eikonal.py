"""A signed distance function whose gradient must have length 1 (the eikonal loss), softplus network with a skip."""

import torch
from torch.nn import functional as F

VALUES = True


def make(rng):
    model = torch.nn.ModuleList(
        [torch.nn.Linear(3, 64), torch.nn.Linear(64, 61), torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)]
    )

    def distance(x):
        hidden = F.softplus(model[0](x), beta=100)
        hidden = torch.cat([F.softplus(model[1](hidden), beta=100), x], -1)
        return model[3](F.softplus(model[2](hidden), beta=100))

    def step(i):
        x = torch.randn(128, 3, generator=torch.Generator().manual_seed(i)).requires_grad_()
        d = distance(x)
        normal = torch.autograd.grad(d, x, torch.ones_like(d), create_graph=True)[0]
        return d[:32].abs().mean() + 0.1 * (normal.norm(2, dim=-1) - 1).square().mean(), [normal]

    return model, step
