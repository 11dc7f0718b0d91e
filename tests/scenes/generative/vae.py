"""The log-variance's exponential feeds both the sample and the KL term, and the Bernoulli likelihood is read from logits."""

import torch
from torch import nn


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(196, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.mean = nn.Linear(64, 16)
        self.log_variance = nn.Linear(64, 16)
        self.decoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 196))

    def forward(self, x):
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decoder(z), mean, log_variance


def make(rng):
    model = Vae()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = (torch.randn(64, 8, generator=generator) @ torch.randn(8, 196, generator=generator) > 0).float()
        logits, mean, log_variance = model(x)
        likelihood = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return (likelihood + divergence) / len(x)

    return model, step
