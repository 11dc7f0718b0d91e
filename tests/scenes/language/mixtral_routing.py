"""Mixtral's routing: the two largest of a softmax, divided by their own sum, weigh experts that see some tokens each; the
load-balance loss reads the same router logits."""

import torch
from torch import nn
from torch.nn import functional as F


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Mixture(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width) for _ in range(experts))

    def forward(self, x):
        logits = self.router(x)
        weights, picked = torch.topk(F.softmax(logits, dim=1, dtype=torch.float), 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, place = torch.where(picked == number)
            result.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return result, logits


def balance(logits, experts):
    probability = F.softmax(logits, dim=-1)
    used = F.one_hot(torch.topk(probability, 2, dim=-1).indices, experts).float().mean(0)
    return (used * probability.mean(0)).sum() * experts


def make(rng):
    model = nn.ModuleList([nn.Embedding(96, 64), nn.LayerNorm(64), Mixture(64, 8), nn.Linear(64, 96)])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = torch.randint(96, (256,), generator=generator)
        x = model[0](tokens)
        result, logits = model[2](model[1](x))
        return F.cross_entropy(model[3](x + result), (7 * tokens + 3) % 96) + 0.02 * balance(logits, 8)

    return model, step
