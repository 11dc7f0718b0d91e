"""L1, smooth L1 and Huber losses of a regression: each compares its save with zero or a threshold."""

import torch
from torch.nn import functional as F


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.ReLU(), torch.nn.Linear(64, 48))

    def step(i):
        data = torch.Generator().manual_seed(i)
        out = model(torch.randn(128, 24, generator=data))
        target = out.detach() + 0.05 * torch.randn(128, 48, generator=data)
        return (
            F.l1_loss(out, target)
            + F.smooth_l1_loss(out, target, beta=0.05)
            + F.huber_loss(out, target, delta=0.02)
            + (out - target).abs().mean()
        )

    return model, step
