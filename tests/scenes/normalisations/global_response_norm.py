"""ConvNeXt V2's global response norm: a norm over the plane divided by its mean over the channels gates the
activation."""

import torch


def response_norm(x, gamma, beta):
    g = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
    n = g / (g.mean(-1, keepdim=True) + 1e-6)
    return gamma * (x * n) + beta + x


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(24, 96), torch.nn.Linear(96, 24)])
    model.gamma, model.beta = torch.nn.Parameter(torch.ones(96)), torch.nn.Parameter(torch.zeros(96))

    def step(i):
        data = torch.Generator().manual_seed(i)
        hidden = torch.nn.functional.gelu(model[0](torch.randn(4, 12, 12, 24, generator=data)))
        return (
            (model[1](response_norm(hidden, model.gamma, model.beta)) - torch.randn(4, 12, 12, 24, generator=data))
            .square()
            .mean()
        )

    return model, step
