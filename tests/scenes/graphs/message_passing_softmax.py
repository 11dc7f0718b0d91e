"""Message passing whose messages are a network of both ends and of the edge, weighted by a softmax that scatter makes."""

import torch
from torch import nn


def scatter_softmax(score, index, nodes):
    largest = torch.full((nodes,), -torch.inf).scatter_reduce(0, index, score.detach(), "amax")
    weight = (score - largest[index]).exp()
    return weight / torch.zeros(nodes).index_add(0, index, weight)[index]


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.score = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x, edges, distance):
        message = self.message(torch.cat([x[edges[0]], x[edges[1]], distance], dim=1))
        weight = scatter_softmax(self.score(message).squeeze(1), edges[1], len(x))
        received = torch.zeros_like(x).index_add(0, edges[1], weight[:, None] * message)
        return x + self.update(torch.cat([x, received], dim=1))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.layers, self.last = nn.Linear(8, 48), nn.ModuleList(Layer(48) for _ in range(2)), nn.Linear(48, 1)

    def forward(self, x, edges, distance):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, edges, distance)
        return self.last(x).squeeze(1)


def make(rng):
    model = Network()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        place = torch.rand(80, 3, generator=generator)
        edges = torch.cat([torch.randint(80, (2, 560), generator=generator), torch.arange(80).expand(2, -1)], dim=1)
        distance = (place[edges[0]] - place[edges[1]]).square().sum(1, keepdim=True)
        x = torch.randn(80, 8, generator=generator)
        return (model(x, edges, distance) - x.sum(1)).square().mean()

    return model, step
