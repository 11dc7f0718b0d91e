"""sigmoid, then bilinear interpolation, then log: a mean of four pixels reaches a logarithm."""

import torch


def loss_of(logits):
    p = torch.sigmoid(logits)
    return -torch.log(
        torch.nn.functional.interpolate(p.view(32, 3, 8, 8), scale_factor=2, mode="bilinear") + 1e-8
    ).mean()


def make(rng):
    model = torch.nn.Linear(48, 192)

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(32, 48, generator=data)
        return loss_of(6 * model(x) - 3)

    return model, step
