"""An eager sigmoid whose loss -log(1 - p + 1e-7) is a function compiled by aot_eager: its pole is inside its own saves."""

import torch


@torch.compile(backend="aot_eager")
def loss_of(p):
    return -torch.log(1 - p + 1e-7).mean()


def forward(model, x):
    return loss_of(torch.sigmoid(5 * model(x) + 3))


def make(rng):
    model = torch.nn.Linear(32, 128)

    def step(i):
        return forward(model, torch.randn(64, 32, generator=torch.Generator().manual_seed(i)))

    return model, step
