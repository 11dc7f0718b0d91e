"""Multi-class hinge losses: their gradients are comparisons of scores with the target's score."""

import torch
from torch.nn import functional as F


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(32, 96), torch.nn.ReLU(), torch.nn.Linear(96, 64))

    def step(i):
        data = torch.Generator().manual_seed(i)
        target = torch.randint(64, (96,), generator=data)
        scores = model(torch.randn(96, 32, generator=data))
        by_hand = (scores - scores.gather(1, target[:, None]) + 0.2).clamp(min=0).mean()
        return F.multi_margin_loss(scores, target, margin=0.3) + by_hand

    return model, step
