"""A gate waits for its reader while another forward pass runs and is dropped; only then a contraction reads the gate."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.value, self.gate, self.out = nn.Linear(64, 128), nn.Linear(64, 128), nn.Linear(128, 32)

    def gated(self, x):
        return torch.sigmoid(self.gate(x)) * torch.tanh(self.value(x))


def make(rng):
    model = Model()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(160, 64, generator=generator)
        first = model.gated(x)
        model.out(model.gated(x.flip(0))).square().mean()  # built and dropped
        return (model.out(first) - x[:, :32]).square().mean()

    return model, step
