"""An equivariant layer: squared distances enter the messages, and differences of places, divided by their length plus
one, are moved by a learned factor that is broadcast."""

import torch
from torch import nn


class Equivariant(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.place = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1, bias=False))
        self.node = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x, place, edges):
        difference = place[edges[0]] - place[edges[1]]
        squared = (difference**2).sum(1, keepdim=True)
        message = self.edge(torch.cat([x[edges[0]], x[edges[1]], squared], dim=1))
        move = difference / ((squared + 1e-8).sqrt() + 1) * self.place(message)
        place = place + torch.zeros_like(place).index_add(0, edges[0], move) / 5
        received = torch.zeros_like(x).index_add(0, edges[0], message)
        return x + self.node(torch.cat([x, received], dim=1)), place


def make(rng):
    model = nn.ModuleList([Equivariant(48), Equivariant(48), nn.Linear(48, 1)])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        edges = (torch.rand(100, 100, generator=generator) < 0.06).fill_diagonal_(False).nonzero().t()
        x, start = torch.randn(100, 48, generator=generator), torch.randn(100, 3, generator=generator)
        place = start
        for layer in model[:2]:
            x, place = layer(x, place, edges)
        energy = model[2](x).sum() / 100
        return (place - 1.5 * start).square().mean() + (energy - 3).square()

    return model, step
