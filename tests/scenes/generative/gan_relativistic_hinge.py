"""Hinge losses of a critic whose convolutions carry a spectral norm, against the mean of the other half of the batch."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm


def make(rng):
    generator_net = nn.Sequential(
        nn.Linear(16, 16 * 16), nn.ReLU(), nn.Unflatten(1, (16, 4, 4)), nn.Upsample(scale_factor=2),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(16, 1, 3, padding=1), nn.Tanh(),
    )  # fmt: skip
    critic = nn.Sequential(
        spectral_norm(nn.Conv2d(1, 16, 3, stride=2, padding=1)), nn.LeakyReLU(0.1),
        spectral_norm(nn.Conv2d(16, 32, 3, stride=2, padding=1)), nn.LeakyReLU(0.1),
        nn.Flatten(), spectral_norm(nn.Linear(32 * 16, 1)),
    )  # fmt: skip
    model = nn.ModuleList([generator_net, critic])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        real = F.interpolate(torch.randn(16, 1, 4, 4, generator=generator), size=16, mode="bilinear").tanh()
        fake = generator_net(torch.randn(16, 16, generator=generator))
        on_real, on_fake = critic(real), critic(fake)
        better = F.relu(1 - (on_real - on_fake.mean())).mean()
        return better + F.relu(1 + (on_fake - on_real.mean())).mean() + 0.1 * on_fake.square().mean()

    return model, step
