"""Feature matching next to an autoencoder: L1 between means of activations that the critic's next layer reads as well."""

import torch
from torch import nn
from torch.nn import functional as F


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = (
            nn.Conv1d(1, 16, 9, 2, 4),
            nn.Conv1d(16, 32, 9, 2, 4),
            nn.Conv1d(32, 1, 3, 1, 1),
        )

    def forward(self, x):
        first = F.leaky_relu(self.first(x), 0.1)
        second = F.leaky_relu(self.second(first), 0.1)
        return self.last(second), [first, second]


def matching(real, fake):
    return sum((a.detach() - b).abs().mean() for a, b in zip(real, fake))


def make(rng):
    decoder = nn.Sequential(
        nn.Conv1d(1, 16, 9, 2, 4), nn.ELU(), nn.Conv1d(16, 16, 9, 1, 4), nn.ELU(), nn.ConvTranspose1d(16, 1, 8, 2, 3)
    )
    critic = Critic()
    model = nn.ModuleList([decoder, critic])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(16, 1, 128, generator=generator).cumsum(-1) * 0.2
        fake = decoder(x)
        score_real, features_real = critic(x)
        score_fake, features_fake = critic(fake)
        adversarial = (1 - score_fake).square().mean() + (1 - score_real).square().mean()
        return adversarial + 2 * matching(features_real, features_fake) + (fake - x).abs().mean()

    return model, step
