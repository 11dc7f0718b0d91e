"""A second loss on an activation that a layer has read: log(1 + h / s) and log h of a softplus's result."""

import torch


def forward(encoder, decoder, x):
    hidden = torch.nn.functional.softplus(encoder(x) * 4 - 3)
    out = decoder(hidden)
    return (
        torch.nn.functional.mse_loss(out, x)
        + 0.02 * torch.log(hidden + 1e-4).mean()
        + 0.1 * torch.log1p(hidden / 0.01).mean()
    )


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)])

    def step(i):
        return forward(*model, torch.randn(96, 64, generator=torch.Generator().manual_seed(i)))

    return model, step
