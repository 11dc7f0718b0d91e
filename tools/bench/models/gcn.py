"""A six-layer graph convolution network (torch_geometric's GCNConv), full-graph training; Adam."""

import torch
from torch import nn
from torch_geometric.nn import GCNConv

from . import Workload
from .parts import GraphOfCommunities, checkpoint_each

LAYERS, WIDTH, FEATURES, CLASSES = 6, 256, 128, 40


class Layer(nn.Module):
    def __init__(self, inputs: int, outputs: int, last: bool):
        super().__init__()
        self.conv = GCNConv(inputs, outputs)
        self.after = nn.Identity() if last else nn.Sequential(nn.BatchNorm1d(outputs), nn.ReLU(), nn.Dropout(0.5))

    def forward(self, x, edges):
        return self.after(self.conv(x, edges))


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [FEATURES] + [WIDTH] * (LAYERS - 1) + [CLASSES]
        self.layers = nn.ModuleList(
            Layer(inputs, outputs, last=i == LAYERS - 1) for i, (inputs, outputs) in enumerate(zip(widths, widths[1:]))
        )

    def forward(self, x, edges):
        for layer in self.layers:
            x = layer(x, edges)
        return x


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    """`batch` is the size of the graph in thousands of nodes."""
    graph = GraphOfCommunities(batch * 1000, FEATURES, CLASSES, seed)
    model = GCN()
    if checkpoint:
        checkpoint_each(model.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def loss(_):
        return nn.functional.cross_entropy(model(graph.x, graph.edges), graph.labels)

    return Workload(model, optimizer, lambda step: None, loss)
