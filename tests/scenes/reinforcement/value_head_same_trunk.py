"""A policy head is read first, then a value head with a log of its sigmoid reads the same activation of the trunk."""

import torch
from torch import nn
from torch.nn import functional as F


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(32, 128), nn.Linear(128, 96)
        self.policy = nn.Linear(96, 8)

    def forward(self, x):
        hidden = torch.sigmoid(self.second(F.relu(self.first(x))) * 20)
        logits = self.policy(hidden)  # the reader that brings the proof
        return logits, torch.log(hidden + 1e-6).mean(1)  # a pole recorded behind it


def make(rng):
    model = ActorCritic()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(256, 32, generator=generator)
        action = torch.randint(8, (256,), generator=generator)
        logits, value = model(x)
        target = x[:, :4].mean(1) - 2
        return F.cross_entropy(logits, action) + 0.5 * (value - target).square().mean()

    return model, step
