"""Dynamic edge convolutions of point clouds: neighbours by top-k of distances in feature space, a maximum over them."""

import torch
from torch import nn
from torch.nn import functional as F


class EdgeConvolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(2 * inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2))

    def forward(self, x):  # batch, channels, points
        with torch.no_grad():
            nearest = torch.cdist(x.transpose(1, 2), x.transpose(1, 2)).topk(8, largest=False).indices
        neighbours = x.transpose(1, 2)[torch.arange(len(x))[:, None, None], nearest]
        centre = x.transpose(1, 2)[:, :, None].expand_as(neighbours)
        features = torch.cat([neighbours - centre, centre], dim=3).permute(0, 3, 1, 2)
        return self.net(features).max(dim=-1).values


def make(rng):
    model = nn.ModuleList([EdgeConvolution(3, 24), EdgeConvolution(24, 32), nn.Linear(32, 5)])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(5, (6,), generator=generator)
        x = torch.randn(6, 3, 64, generator=generator) * (1 + label[:, None, None] * torch.tensor([0.2, 0.5, 1])[:, None])
        hidden = model[1](model[0](x))
        return F.cross_entropy(model[2](hidden.max(dim=2).values), label)

    return model, step
