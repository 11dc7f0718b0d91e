"""A variational graph autoencoder: the reconstruction is -log(sigmoid(z_i . z_j) + 1e-15) over edges and
-log(1 - sigmoid + 1e-15) over pairs that are none, as torch_geometric writes it."""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.mean, self.log_std = nn.Linear(64, 96), nn.Linear(96, 48), nn.Linear(96, 48)
        with torch.no_grad():
            self.mean.weight.mul_(8)

    def forward(self, x, adjacency):
        hidden = torch.relu(adjacency @ self.first(x))
        return adjacency @ self.mean(hidden), adjacency @ self.log_std(hidden)


def decode(z, edges):
    return torch.sigmoid((z[edges[0]] * z[edges[1]]).sum(dim=1))


def reconstruction(z, edges, others):
    present = -torch.log(decode(z, edges) + 1e-15).mean()
    return present - torch.log(1 - decode(z, others) + 1e-15).mean()


def make(rng):
    model = Encoder()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        edges = torch.randint(120, (2, 900), generator=generator)
        adjacency = torch.eye(120).index_put((edges[0], edges[1]), torch.tensor(1.0))
        adjacency = adjacency / adjacency.sum(1, keepdim=True)
        mean, log_std = model(torch.randn(120, 64, generator=generator), adjacency)
        z = mean + torch.randn_like(mean) * torch.exp(log_std)
        divergence = -0.5 * (1 + 2 * log_std - mean**2 - log_std.exp() ** 2).sum(1).mean()
        others = torch.randint(120, (2, 900), generator=generator)
        return reconstruction(z, edges, others) + divergence / 120

    return model, step
