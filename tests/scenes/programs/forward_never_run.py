"""A forward pass with gradients whose loss is dropped, as in a validation without no_grad, comes before the one that counts;
the dropped one ends in a pole."""

import torch
from torch import nn
from torch.nn import functional as F


def make(rng):
    model = nn.Sequential(nn.Linear(64, 128), nn.Sigmoid(), nn.Linear(128, 96), nn.GELU(), nn.Linear(96, 10), nn.Softmax(dim=1))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(160, 64, generator=generator)
        measured = -torch.log(model(x.flip(0)) + 1e-9).mean()
        assert measured.requires_grad  # its graph is dropped here, unread
        return F.nll_loss(model[:5](x).log_softmax(1), x[:, :10].argmax(1))

    return model, step
