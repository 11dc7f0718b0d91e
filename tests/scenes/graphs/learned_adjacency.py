"""A learned adjacency of traffic forecasting, normalised by the inverse root of its own degrees: D^-1/2 A D^-1/2 with a
few nodes of hardly any degree."""

import torch
from torch import nn
from torch.nn import functional as F


class Learned(nn.Module):
    def __init__(self, nodes, width):
        super().__init__()
        self.source, self.target = nn.Parameter(torch.randn(nodes, 12)), nn.Parameter(torch.randn(nodes, 12))
        self.first, self.second, self.last = nn.Linear(12, width), nn.Linear(width, width), nn.Linear(width, 1)

    def adjacency(self):
        a = torch.sigmoid(2 * self.source @ self.target.t() - 6)
        a = a + a.t()
        degree = a.sum(1).rsqrt()
        return degree[:, None] * a * degree

    def forward(self, x):
        a = self.adjacency()
        x = F.relu(self.first(torch.einsum("nm,bmc->bnc", a, x)))
        x = F.relu(self.second(torch.einsum("nm,bmc->bnc", a, x)) + x)
        return self.last(x).squeeze(-1)


def make(rng):
    model = Learned(64, 48)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(8, 64, 12, generator=generator).cumsum(-1)
        return F.l1_loss(model(x), x.mean(-1) + x[..., -1].roll(1, 1) + 1)

    return model, step
