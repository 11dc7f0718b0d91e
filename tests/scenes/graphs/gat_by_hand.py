"""Graph attention by hand: scores of edges by index, an exponential less the maximum of its node, a quotient by the
scattered sum, and heads broadcast against features."""

import torch
from torch import nn
from torch.nn import functional as F


class Gat(nn.Module):
    def __init__(self, inputs, heads, width):
        super().__init__()
        self.heads, self.width = heads, width
        self.linear = nn.Linear(inputs, heads * width, bias=False)
        self.source, self.target = nn.Parameter(torch.randn(heads, width) * 0.5), nn.Parameter(torch.randn(heads, width) * 0.5)

    def weights(self, features, edges, nodes):
        source, target = (features * self.source).sum(-1), (features * self.target).sum(-1)
        score = F.leaky_relu(source[edges[0]] + target[edges[1]], 0.2)
        index = edges[1][:, None].expand_as(score)
        largest = torch.full((nodes, self.heads), -torch.inf).scatter_reduce(0, index, score.detach(), "amax")
        weight = torch.exp(score - largest[edges[1]])
        total = torch.zeros(nodes, self.heads).scatter_add(0, index, weight)
        return weight / (total[edges[1]] + 1e-16)

    def forward(self, x, edges):
        features = self.linear(x).view(-1, self.heads, self.width)
        weight = F.dropout(self.weights(features, edges, len(x)), 0.2, self.training)
        messages = features[edges[0]] * weight[:, :, None]
        return torch.zeros_like(features).index_add(0, edges[1], messages).flatten(1)


def make(rng):
    model = nn.ModuleList([Gat(64, 4, 16), Gat(64, 1, 64), nn.Linear(64, 7)])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        edges = torch.cat([torch.randint(200, (2, 800), generator=generator), torch.arange(200).expand(2, -1)], dim=1)
        x, label = torch.randn(200, 64, generator=generator), torch.randint(7, (200,), generator=generator)
        hidden = F.elu(model[0](x, edges))
        return F.cross_entropy(model[2](F.elu(model[1](hidden, edges))), label)

    return model, step
