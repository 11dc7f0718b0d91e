"""The losses of a GAN written with logs of a sigmoid: a sure discriminator puts its probabilities at the pole."""

import torch
from torch import nn


def make(rng):
    generator_net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 48), nn.Tanh())
    discriminator = nn.Sequential(
        nn.Linear(48, 128), nn.LeakyReLU(0.2), nn.Linear(128, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1), nn.Sigmoid()
    )
    with torch.no_grad():
        discriminator[4].weight.mul_(25)
    model = nn.ModuleList([generator_net, discriminator])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        real = torch.randn(256, 4, generator=generator) @ torch.randn(4, 48, generator=torch.Generator().manual_seed(99))
        fake = generator_net(torch.randn(256, 16, generator=generator))
        judged = -(torch.log(discriminator(real) + 1e-8) + torch.log(1 - discriminator(fake.detach()) + 1e-8)).mean()
        return judged - torch.log(discriminator(fake) + 1e-8).mean()

    return model, step
