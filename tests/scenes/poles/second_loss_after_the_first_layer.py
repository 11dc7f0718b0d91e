"""A logarithm on an activation that two layers have read already: the pole is recorded when the activation may be
noisy."""

import torch


def trunk(model, x):
    gate = torch.sigmoid(4 * model[0](x))
    first = torch.relu(model[1](gate))
    return gate, model[2](first)


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(48, 96), torch.nn.Linear(96, 96), torch.nn.Linear(96, 10)])

    def step(i):
        data = torch.Generator().manual_seed(i)
        gate, out = trunk(model, torch.randn(96, 48, generator=data))
        loss = torch.nn.functional.cross_entropy(out, torch.randint(10, (96,), generator=data))
        late = -torch.log(gate + 1e-6).mean()
        del gate
        return loss + 0.1 * late

    return model, step
