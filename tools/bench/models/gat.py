"""A three-layer graph attention network (torch_geometric's GATConv), full-graph training; Adam."""

import torch
from torch import nn
from torch_geometric.nn import GATConv

from . import Workload
from .parts import GraphOfCommunities, checkpoint_each

LAYERS, HEADS, WIDTH, FEATURES, CLASSES = 3, 4, 32, 128, 40


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [FEATURES] + [HEADS * WIDTH] * LAYERS
        self.layers = nn.ModuleList(
            GATConv(inputs, WIDTH, heads=HEADS, dropout=0.3) for inputs in widths[:LAYERS]
        )
        self.head = nn.Linear(HEADS * WIDTH, CLASSES)

    def forward(self, x, edges):
        for layer in self.layers:
            x = nn.functional.elu(layer(x, edges))
        return self.head(nn.functional.dropout(x, 0.3, self.training))


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    """`batch` is the size of the graph in thousands of nodes."""
    graph = GraphOfCommunities(batch * 1000, FEATURES, CLASSES, seed)
    model = GAT()
    if checkpoint:
        checkpoint_each(model.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)

    def loss(_):
        return nn.functional.cross_entropy(model(graph.x, graph.edges), graph.labels)

    return Workload(model, optimizer, lambda step: None, loss)
