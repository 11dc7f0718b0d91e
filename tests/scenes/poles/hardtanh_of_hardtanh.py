"""hardtanh of hardtanh: half of the second one's arguments are exactly at its bounds."""

import torch


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 96), torch.nn.Hardtanh(), torch.nn.Hardtanh(), torch.nn.Linear(96, 8)
    )

    def step(i):
        return model(4 * torch.randn(64, 32, generator=torch.Generator().manual_seed(i))).square().mean()

    return model, step
