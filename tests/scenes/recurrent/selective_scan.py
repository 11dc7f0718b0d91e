"""Mamba's selective scan by hand: exp(delta A) multiplies the state at each step, delta is a softplus, and SiLU gates the
result."""

import torch
from torch import nn
from torch.nn import functional as F


class Mamba(nn.Module):
    def __init__(self, width, states=8):
        super().__init__()
        self.norm, self.states = nn.RMSNorm(width), states
        self.inputs, self.out = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, width, bias=False)
        self.convolution = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.project, self.delta = nn.Linear(width, 4 + 2 * states, bias=False), nn.Linear(4, width)
        self.log_a = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(width, 1))
        self.d = nn.Parameter(torch.ones(width))
        with torch.no_grad():
            self.delta.bias.uniform_(-6, -2)

    def scan(self, x, delta, b, c):
        a = -torch.exp(self.log_a)
        decay = torch.exp(delta[..., None] * a)
        fed = delta[..., None] * b[:, :, None] * x[..., None]
        state, outputs = torch.zeros_like(fed[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + fed[:, t]
            outputs.append((state * c[:, t, None]).sum(-1))
        return torch.stack(outputs, dim=1) + x * self.d

    def forward(self, x):
        inner, gate = self.inputs(self.norm(x)).chunk(2, dim=-1)
        inner = F.silu(self.convolution(inner.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        delta, b, c = self.project(inner).split([4, self.states, self.states], dim=-1)
        return x + self.out(self.scan(inner, F.softplus(self.delta(delta)), b, c) * F.silu(gate))


def make(rng):
    model = nn.Sequential(nn.Embedding(96, 48), Mamba(48), nn.RMSNorm(48), nn.Linear(48, 96))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = (torch.randint(96, (4, 1), generator=generator) + torch.arange(33) * 5) % 96
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return model, step
