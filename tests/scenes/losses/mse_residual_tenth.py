"""mse_loss of nearly equal tensors: elements of size 3 that differ by 0.1, so noise in either is larger than the
gradient."""

import torch

RESIDUAL = 0.1


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(16, 48), torch.nn.Tanh(), torch.nn.Linear(48, 256))

    def step(i):
        data = torch.Generator().manual_seed(i)
        out = model(torch.randn(32, 16, generator=data))
        size = 3 * torch.randn(32, 256, generator=data)
        return torch.nn.functional.mse_loss(
            out - out.detach() + size, size + RESIDUAL * torch.randn(32, 256, generator=data)
        )

    return model, step
