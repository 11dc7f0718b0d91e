"""The recurrence of RecurrentGemma by hand: a Python function saves the argument of a root, 1 - a^2, that is near its pole
wherever the gate is closed."""

import torch
from torch import nn
from torch.nn import functional as F


class SqrtBoundDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sqrt(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output / torch.sqrt(torch.clip(4.0 * x, min=1e-6))


class RgLru(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.recurrent = nn.Parameter(torch.empty(width).uniform_(-6, -2))
        self.input_gate, self.recurrent_gate = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        input_gate = torch.sigmoid(self.input_gate(x))
        log_gate = -8.0 * torch.sigmoid(2 * self.recurrent_gate(x)) * F.softplus(self.recurrent)
        gate, square = torch.exp(log_gate), torch.exp(2 * log_gate)
        x = x * input_gate * SqrtBoundDerivative.apply(1 - square)
        state, states = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            state = gate[:, t] * state + x[:, t]
            states.append(state)
        return torch.stack(states, dim=1)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.y, self.x, self.out = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.convolution = nn.Conv1d(width, width, 4, groups=width, padding=3)
        self.norm, self.unit = nn.RMSNorm(width), RgLru(width)

    def forward(self, x):
        hidden = self.norm(x)
        y = F.gelu(self.y(hidden), approximate="tanh")
        inner = self.convolution(self.x(hidden).transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        return x + self.out(self.unit(inner) * y)


def make(rng):
    model = nn.Sequential(nn.Embedding(96, 64), Block(64), nn.RMSNorm(64), nn.Linear(64, 96))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = (torch.randint(96, (6, 1), generator=generator) + torch.arange(33) * 5) % 96
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return model, step
