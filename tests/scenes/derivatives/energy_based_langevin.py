"""An energy-based model: twenty Langevin steps by autograd.grad make the negatives, then the energies' difference is
trained."""

import torch

VALUES = True


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 96), torch.nn.SiLU(), torch.nn.Linear(96, 96), torch.nn.SiLU(), torch.nn.Linear(96, 1)
    )

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(48, 32, generator=data)
        for _ in range(20):
            x = x.detach().requires_grad_()
            slope = torch.autograd.grad(model(x).sum(), x)[0]
            x = x - 0.1 * slope + 0.05 * torch.randn(48, 32, generator=data)
        x = x.detach()
        return model(2 * torch.randn(48, 32, generator=data)).mean() - model(x).mean(), [x]

    return model, step
