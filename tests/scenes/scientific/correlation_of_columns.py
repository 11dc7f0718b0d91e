"""torch.corrcoef of unscaled columns, and a decorrelation loss on it: quiet columns are divided by their small
deviation."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.Tanh(), torch.nn.Linear(64, 48))
    scale, offset = torch.logspace(-3, 2, 48)[torch.randperm(48, generator=rng)], 3 * torch.randn(48, generator=rng)

    def step(i):
        out = model(torch.randn(128, 24, generator=torch.Generator().manual_seed(i))) * scale + offset
        return (torch.corrcoef(out.T) - torch.eye(48)).square().mean()

    return model, step
