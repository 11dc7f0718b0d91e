"""An eager sigmoid whose loss is recorded under a user's saved-tensor hooks: they keep the logarithm's save, invisible to
Pleat."""

import torch


def loss_of(p):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        return -torch.log(1 - p + 1e-7).mean()


def forward(model, x):
    return loss_of(torch.sigmoid(5 * model(x) + 3))


def make(rng):
    model = torch.nn.Linear(32, 128)

    def step(i):
        return forward(model, torch.randn(64, 32, generator=torch.Generator().manual_seed(i)))

    return model, step
