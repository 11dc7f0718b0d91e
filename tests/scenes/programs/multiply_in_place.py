"""`x *= gate` and `p += eps` in place before a log: the pole reads a storage that other nodes have written to."""

import torch
from torch import nn


def make(rng):
    model = nn.ModuleList([nn.Linear(48, 128), nn.Linear(48, 128), nn.Linear(128, 64)])
    with torch.no_grad():
        model[2].weight.mul_(40)

    def likelihood(x):
        hidden = model[0](x)
        hidden *= torch.sigmoid(model[1](x))
        probability = torch.sigmoid(model[2](torch.tanh(hidden))) * 0.9999
        probability += 1e-7
        return torch.log(probability)

    def step(i):
        return -likelihood(torch.randn(160, 48, generator=torch.Generator().manual_seed(i))).mean()

    return model, step
