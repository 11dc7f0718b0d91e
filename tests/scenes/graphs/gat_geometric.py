"""GATConv of torch_geometric: its softmax over the neighbours is a quotient of an exponential by its own scattered sum."""

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GATConv

SLOW = True  # the import of torch_geometric takes seconds


class Gat(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GATConv(64, 16, heads=4, dropout=0.2), GATConv(64, 7, heads=1)

    def forward(self, x, edges):
        return self.second(F.elu(self.first(F.dropout(x, 0.2), edges)), edges)


def make(rng):
    model = Gat()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        edges = torch.randint(200, (2, 800), generator=generator)
        x, label = torch.randn(200, 64, generator=generator), torch.randint(7, (200,), generator=generator)
        return F.cross_entropy(model(x, edges), label)

    return model, step
