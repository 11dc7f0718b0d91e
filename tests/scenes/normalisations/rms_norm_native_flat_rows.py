"""torch's own rms_norm on rows of which one in eight is 200 times larger: the small ones are flat relative to them."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(24, 96), torch.nn.RMSNorm(96), torch.nn.Linear(96, 16))
    size = torch.ones(64, 1)
    size[::8] = 200

    def step(i):
        data = torch.Generator().manual_seed(i)
        return (model(size * torch.randn(64, 24, generator=data)) - torch.randn(64, 16, generator=data)).square().mean()

    return model, step
