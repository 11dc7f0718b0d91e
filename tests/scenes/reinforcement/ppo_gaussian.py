"""PPO with continuous actions and a free log standard deviation, the advantage normalised by hand, several epochs on
one set of data so that ratios start at exactly one."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(24, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 6))
        self.value = nn.Sequential(nn.Linear(24, 96), nn.Tanh(), nn.Linear(96, 1))
        self.log_std = nn.Parameter(torch.full((1, 6), -1.0))

    def forward(self, x, action):
        mean = self.mean(x)
        distribution = torch.distributions.Normal(mean, self.log_std.expand_as(mean).exp())
        return distribution.log_prob(action).sum(1), distribution.entropy().sum(1), self.value(x).squeeze(1)


def make(rng):
    model = Policy()
    old_model = Policy().requires_grad_(False)
    old_model.load_state_dict(model.state_dict())

    def step(i):
        generator = torch.Generator().manual_seed(i // 3)
        x = torch.randn(256, 24, generator=generator)
        action = old_model.mean(x) + 0.36 * torch.randn(256, 6, generator=generator)
        returns = x[:, :3].sum(1) + action.sum(1)
        with torch.no_grad():
            old, _, old_value = old_model(x, action)
        log_probability, entropy, value = model(x, action)
        advantage = returns - old_value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = torch.exp(log_probability - old)
        policy = -torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage).mean()
        return policy + 0.5 * (returns - value).pow(2).mean() - 0.001 * entropy.mean()

    return nn.ModuleDict({"new": model, "old": old_model}), step
