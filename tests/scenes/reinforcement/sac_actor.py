"""The squashed Gaussian of SAC: log(1 - tanh(u)^2 + 1e-6) has its pole where the action saturates."""

import math

import torch
from torch import nn


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.mean, self.log_std = nn.Linear(128, 8), nn.Linear(128, 8)
        with torch.no_grad():
            self.mean.weight.mul_(30)

    def forward(self, observation):
        hidden = self.trunk(observation)
        mean, log_std = self.mean(hidden), torch.clamp(self.log_std(hidden), -20, 2)
        std = log_std.exp()
        raw = mean + std * torch.randn_like(mean)
        action = torch.tanh(raw)
        log_probability = -0.5 * ((raw - mean) / std).pow(2) - log_std - 0.5 * math.log(2 * math.pi)
        log_probability = log_probability - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_probability.sum(1, keepdim=True)


def make(rng):
    actor = Actor()
    critic = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1)).requires_grad_(False)
    model = nn.ModuleList([actor, critic])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        observation = torch.randn(256, 24, generator=generator)
        action, log_probability = actor(observation)
        return (0.2 * log_probability - critic(torch.cat([observation, action], dim=1))).mean()

    return model, step
