"""Unlikelihood training: -log(1 - p) of words used before, clamped from below, next to the cross entropy of the same
logits."""

import torch
from torch import nn
from torch.nn import functional as F


def unlikelihood(logits, tokens):
    probability = torch.softmax(logits, dim=-1)
    said = tokens[:, None, :].expand(-1, tokens.shape[1], -1).tril()
    negative = torch.zeros_like(probability).scatter_(2, said, 1.0)
    one_minus = torch.clamp(1.0 - probability, min=1e-5)
    return -(torch.log(one_minus) * negative).sum(-1).mean()


def make(rng):
    model = nn.Sequential(
        nn.Embedding(96, 64), nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64), nn.LayerNorm(64), nn.Linear(64, 96)
    )
    with torch.no_grad():
        model[5].weight.mul_(6)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = torch.randint(96, (6, 33), generator=generator)
        logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) + unlikelihood(logits, tokens[:, :-1])

    return model, step
