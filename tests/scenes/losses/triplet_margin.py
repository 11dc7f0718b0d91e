"""Triplet margin loss with distances by a root: anchors near their positives put the root at its pole."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(32, 96), torch.nn.ReLU(), torch.nn.Linear(96, 64))

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(64, 32, generator=data)
        anchor, positive, negative = (
            model(x),
            model(x + 0.02 * torch.randn(64, 32, generator=data)),
            model(x.roll(1, 0)),
        )
        return torch.nn.functional.triplet_margin_loss(anchor, positive, negative, margin=2.0)

    return model, step
