"""Two graph convolutions by a sparse normalised adjacency, dropout and a log-softmax over a few labelled nodes."""

import torch
from torch import nn
from torch.nn import functional as F

torch.sparse.check_sparse_tensor_invariants.disable()  # set explicitly, so that torch prints no warning


def normalised_adjacency(edges, nodes):
    edges = torch.cat([edges, edges.flip(0), torch.arange(nodes).expand(2, -1)], dim=1)
    degree = torch.zeros(nodes).scatter_add_(0, edges[0], torch.ones(edges.shape[1]))
    weight = degree[edges[0]].rsqrt() * degree[edges[1]].rsqrt()
    return torch.sparse_coo_tensor(edges, weight, (nodes, nodes)).coalesce()


def make(rng):
    model = nn.ModuleList([nn.Linear(96, 64), nn.Linear(64, 64), nn.Linear(64, 7)])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        adjacency = normalised_adjacency(torch.randint(300, (2, 1200), generator=generator), 300)
        x, label = torch.randn(300, 96, generator=generator), torch.randint(7, (300,), generator=generator)
        for layer in model[:-1]:
            x = F.dropout(F.relu(torch.sparse.mm(adjacency, layer(x))), 0.5)
        return F.nll_loss(F.log_softmax(torch.sparse.mm(adjacency, model[-1](x)), dim=1)[:100], label[:100])

    return model, step
