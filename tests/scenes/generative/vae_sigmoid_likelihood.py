"""The decoder ends in a sigmoid and the likelihood is written out with logs: its saturated pixels are at the pole."""

import torch
from torch import nn


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(196, 128), nn.Tanh(), nn.Linear(128, 32))
        self.decoder = nn.Sequential(nn.Linear(16, 128), nn.Tanh(), nn.Linear(128, 196), nn.Sigmoid())
        with torch.no_grad():
            self.decoder[2].weight.mul_(12)  # as after training: most pixels are decided

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decoder(z), mean, log_variance


def elbo(image, x, mean, log_variance):
    likelihood = x * torch.log(image + 1e-8) + (1 - x) * torch.log(1 - image + 1e-8)
    divergence = 0.5 * (mean.pow(2) + log_variance.exp() - 1 - log_variance)
    return likelihood.sum(1).mean() - divergence.sum(1).mean()


def make(rng):
    model = Vae()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = (torch.randn(64, 8, generator=generator) @ torch.randn(8, 196, generator=generator) > 0).float()
        image, mean, log_variance = model(x)
        return -elbo(image, x, mean, log_variance)

    return model, step
