"""Both losses of a GAN by softplus of the discriminator's scores, read through a convolutional generator."""

import torch
from torch import nn
from torch.nn import functional as F


def make(rng):
    generator_net = nn.Sequential(
        nn.Linear(16, 32 * 16), nn.Unflatten(1, (32, 4, 4)), nn.BatchNorm2d(32), nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1), nn.Tanh(),
    )  # fmt: skip
    discriminator = nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(32 * 16, 1),
    )  # fmt: skip
    model = nn.ModuleList([generator_net, discriminator])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        real = F.interpolate(torch.randn(24, 1, 4, 4, generator=generator), size=16, mode="bilinear").tanh()
        fake = generator_net(torch.randn(24, 16, generator=generator))
        judged = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake.detach())).mean()
        return judged + F.softplus(-discriminator(fake)).mean()

    return model, step
