"""TransformerConv of torch_geometric with edge features and the learned gate of its skip connection, then a pooled readout."""

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import LayerNorm, TransformerConv, global_mean_pool

SLOW = True  # the import of torch_geometric takes seconds


class Readout(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = TransformerConv(48, 16, heads=4, edge_dim=8, beta=True)
        self.norm, self.second = LayerNorm(64), TransformerConv(64, 16, heads=4, edge_dim=8, beta=True)
        self.last = nn.Linear(64, 1)

    def forward(self, x, edges, features, batch):
        x = F.relu(self.norm(self.first(x, edges, features), batch))
        return self.last(global_mean_pool(F.relu(self.second(x, edges, features)), batch)).squeeze(1)


def make(rng):
    model = Readout()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        batch = torch.arange(240) // 15
        edges = torch.randint(15, (2, 960), generator=generator) + (torch.arange(960) // 60) * 15
        x, features = torch.randn(240, 48, generator=generator), torch.randn(960, 8, generator=generator)
        target = torch.zeros(16).index_add(0, batch, x[:, 0]) / 15 + 1
        return F.mse_loss(model(x, edges, features, batch), target)

    return model, step
