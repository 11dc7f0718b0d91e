"""A perceptual loss: features of a frozen trunk are scaled to length one a pixel, as LPIPS does, and compared; the gradient
passes the frozen convolutions to the network before them."""

import torch
from torch import nn
from torch.nn import functional as F


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1), nn.Conv2d(32, 32, 3, 2, 1)]
        )
        self.requires_grad_(False)

    def forward(self, x):
        features = []
        for layer in self.layers:
            x = F.relu(layer(x))
            features.append(x / (torch.sqrt(torch.sum(x**2, dim=1, keepdim=True)) + 1e-10))
        return features


def make(rng):
    network = nn.Sequential(
        nn.Conv2d(3, 24, 5, padding=2),
        nn.PReLU(),
        nn.Conv2d(24, 24, 3, padding=1),
        nn.PReLU(),
        nn.Conv2d(24, 3, 3, padding=1),
    )
    trunk = Frozen()
    model = nn.ModuleDict({"network": network, "trunk": trunk})

    def step(i):
        generator = torch.Generator().manual_seed(i)
        sharp = F.interpolate(torch.randn(6, 3, 8, 8, generator=generator), size=20, mode="bicubic")
        result = network(F.avg_pool2d(sharp, 3, 1, 1)) + sharp * 0.1
        with torch.no_grad():
            wanted = trunk(sharp)
        return sum((a - b).square().sum(1).mean() for a, b in zip(trunk(result), wanted)) + F.l1_loss(result, sharp)

    return model, step
