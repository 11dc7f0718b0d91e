"""leaky_relu of elements that are exactly 0 (a masked tensor): the slope there is the negative one, and noise has a
sign."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(32, 96), torch.nn.Linear(96, 8))

    def step(i):
        data = torch.Generator().manual_seed(i)
        hidden = model[0](torch.randn(64, 32, generator=data))
        keep = torch.rand(64, 96, generator=data) < 0.5
        shown = torch.where(keep, hidden, hidden - hidden.detach())  # 0, with a gradient
        return model[1](torch.nn.functional.leaky_relu(shown, 0.01)).square().mean()

    return model, step
