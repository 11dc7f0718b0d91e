"""An eager sigmoid whose loss is computed in a non-reentrant checkpoint: its hooks drop the logarithm's save."""

import torch
from torch.utils.checkpoint import checkpoint


def loss_of(p):
    return -torch.log(1 - p + 1e-7).mean()


def forward(model, x):
    return checkpoint(loss_of, torch.sigmoid(5 * model(x) + 3), use_reentrant=False)


def make(rng):
    model = torch.nn.Linear(32, 128)

    def step(i):
        return forward(model, torch.randn(64, 32, generator=torch.Generator().manual_seed(i)))

    return model, step
