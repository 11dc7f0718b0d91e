"""A categorical VAE: relaxed samples at temperature 0.5 and the entropy of the posterior as q (log(q + eps) - log(1/k))."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(144, 128), nn.ReLU(), nn.Linear(128, 12 * 10))
        self.decoder = nn.Sequential(nn.Linear(12 * 10, 128), nn.ReLU(), nn.Linear(128, 144))
        with torch.no_grad():
            self.encoder[2].weight.mul_(12)

    def forward(self, x):
        logits = self.encoder(x).view(-1, 12, 10)
        sample = F.gumbel_softmax(logits, tau=0.5)
        q = torch.softmax(logits, dim=-1)
        divergence = (q * (torch.log(q + 1e-12) + math.log(10))).sum((1, 2)).mean()
        return self.decoder(sample.flatten(1)), divergence


def make(rng):
    model = Vae()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = (torch.randn(64, 6, generator=generator) @ torch.randn(6, 144, generator=generator) > 0).float()
        logits, divergence = model(x)
        return F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x) + divergence

    return model, step
