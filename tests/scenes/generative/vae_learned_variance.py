"""A convolutional VAE whose Gaussian likelihood divides by a variance that the decoder predicts."""

import math

import torch
from torch import nn


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.SiLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.SiLU()
        )
        self.latent = nn.Linear(32 * 16, 24)
        self.expand = nn.Linear(12, 32 * 16)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.SiLU(), nn.ConvTranspose2d(16, 2, 4, stride=2, padding=1)
        )

    def forward(self, x):
        mean, log_variance = self.latent(self.encoder(x).flatten(1)).chunk(2, dim=1)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        image, log_scale = self.decoder(nn.functional.silu(self.expand(z)).view(-1, 32, 4, 4)).chunk(2, dim=1)
        return image, nn.functional.softplus(log_scale) + 1e-3, mean, log_variance


def loss_of(x, image, scale, mean, log_variance):
    likelihood = -0.5 * ((x - image) / scale) ** 2 - torch.log(scale) - 0.5 * math.log(2 * math.pi)
    divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance)
    return (divergence.sum() - likelihood.sum()) / x.numel()


def make(rng):
    model = Vae()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = nn.functional.interpolate(torch.randn(16, 1, 4, 4, generator=generator), size=16, mode="bilinear")
        return loss_of(x, *model(x))

    return model, step
