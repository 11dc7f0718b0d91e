"""GCNConv of torch_geometric: the normalisation of edges is computed in the forward pass, messages are picked and added up."""

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv

SLOW = True  # the import of torch_geometric takes seconds


class Gcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(96, 64), GCNConv(64, 7)

    def forward(self, x, edges):
        x = F.dropout(F.relu(self.first(x, edges)), 0.5)
        return self.second(x, edges)


def make(rng):
    model = Gcn()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        edges = torch.randint(300, (2, 1200), generator=generator)
        x, label = torch.randn(300, 96, generator=generator), torch.randint(7, (300,), generator=generator)
        return F.cross_entropy(model(x, edges), label)

    return model, step
