"""Twin critics against a target that a slow copy of them gives, and a learned temperature: plain networks that must
stay compressed."""

import torch
from torch import nn
from torch.nn import functional as F


def network():
    return nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))


class Critics(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = network(), network()

    def forward(self, x):
        return self.first(x), self.second(x)


def make(rng):
    critics, targets = Critics(), Critics().requires_grad_(False)
    targets.load_state_dict(critics.state_dict())
    model = nn.ModuleDict({"critics": critics, "targets": targets})
    model.log_alpha = nn.Parameter(torch.zeros(1))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x, following = torch.randn(256, 32, generator=generator), torch.randn(256, 32, generator=generator)
        log_probability = torch.randn(256, 1, generator=generator) - 2
        with torch.no_grad():
            for slow, fast in zip(targets.parameters(), critics.parameters()):
                slow.lerp_(fast, 0.005)
            value = torch.min(*targets(following)) - model.log_alpha.exp() * log_probability
            target = x[:, :4].sum(1, keepdim=True) + 0.99 * value
        first, second = critics(x)
        temperature = -(model.log_alpha.exp() * (log_probability - 8)).mean()
        return F.mse_loss(first, target) + F.mse_loss(second, target) + temperature

    return model, step
