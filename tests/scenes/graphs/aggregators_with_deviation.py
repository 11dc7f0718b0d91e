"""Principal neighbourhood aggregation: mean, maximum and the standard deviation sqrt(relu(E[x^2] - E[x]^2) + 1e-5), which is
at its pole for nodes with one neighbour."""

import torch
from torch import nn
from torch.nn import functional as F


class Aggregate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.after = nn.Linear(2 * width, width), nn.Linear(4 * width, width)

    def forward(self, x, edges):
        message = self.before(torch.cat([x[edges[0]], x[edges[1]]], dim=1))
        index = edges[1][:, None].expand_as(message)
        count = torch.zeros(len(x)).index_add(0, edges[1], torch.ones(edges.shape[1]))[:, None].clamp(min=1)
        mean = torch.zeros_like(x).index_add(0, edges[1], message) / count
        squares = torch.zeros_like(x).index_add(0, edges[1], message * message) / count
        deviation = torch.sqrt(torch.relu(squares - mean * mean) + 1e-5)
        largest = torch.zeros_like(x).scatter_reduce(0, index, message, "amax", include_self=False)
        return F.relu(self.after(torch.cat([x, mean, deviation, largest], dim=1))) + x


def make(rng):
    model = nn.ModuleList([nn.Linear(32, 48), Aggregate(48), Aggregate(48), nn.Linear(48, 1)])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        source, target = (
            torch.randint(150, (600,), generator=generator),
            torch.randint(150, (600,), generator=generator),
        )
        target = torch.where(target < 40, target + 110, target)
        edges = torch.cat([torch.stack([source, target]), torch.arange(150).expand(2, -1)], dim=1)
        x = torch.randn(150, 32, generator=generator)
        hidden = model[2](model[1](model[0](x), edges), edges)
        return F.mse_loss(model[3](hidden).squeeze(1), x[:, :8].sum(1))

    return model, step
