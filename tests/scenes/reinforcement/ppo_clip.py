"""PPO with discrete actions: the ratio is an exponential, a clamp and a minimum choose by comparison, and the value is
clipped as well."""

import torch
from torch import nn
from torch.nn import functional as F


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6))
        self.critic = nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x, action):
        distribution = torch.distributions.Categorical(logits=self.actor(x))
        return distribution.log_prob(action), distribution.entropy(), self.critic(x).squeeze(1)


def loss_of(new, entropy, value, old, advantage, old_value, returns):
    ratio = (new - old).exp()
    policy = torch.max(-advantage * ratio, -advantage * torch.clamp(ratio, 0.8, 1.2)).mean()
    clipped = old_value + torch.clamp(value - old_value, -0.2, 0.2)
    fit = 0.5 * torch.max((value - returns) ** 2, (clipped - returns) ** 2).mean()
    return policy + 0.5 * fit - 0.01 * entropy.mean()


def make(rng):
    model = ActorCritic()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(256, 24, generator=generator)
        action = torch.randint(6, (256,), generator=generator)
        old = -torch.rand(256, generator=generator) * 0.6 - 1.5
        advantage = F.normalize(torch.randn(256, generator=generator) + (action == 2), dim=0) * 16
        old_value, returns = 0.3 * torch.randn(256, generator=generator), x[:, :3].sum(1)
        return loss_of(*model(x, action), old, advantage, old_value, returns)

    return model, step
