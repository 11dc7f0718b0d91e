"""mse_loss saves prediction and target, and its gradient is their small difference: here of elements that differ by
1."""

import torch

RESIDUAL = 1.0


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(16, 48), torch.nn.Tanh(), torch.nn.Linear(48, 256))

    def step(i):
        data = torch.Generator().manual_seed(i)
        out = model(torch.randn(32, 16, generator=data))
        size = 3 * torch.randn(32, 256, generator=data)  # the part that is fitted already
        return torch.nn.functional.mse_loss(
            out - out.detach() + size, size + RESIDUAL * torch.randn(32, 256, generator=data)
        )

    return model, step
