"""The pairwise loss of a reward model, -log(sigmoid(difference)) by hand, with pairs that are ordered by far."""

import torch


def preference(chosen, rejected):
    return -torch.log(torch.sigmoid(chosen - rejected)).mean()


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.GELU(), torch.nn.Linear(96, 1))

    def step(i):
        data = torch.Generator().manual_seed(i)
        a, b = torch.randn(512, 48, generator=data), torch.randn(512, 48, generator=data)
        return preference(20 * model(a), 20 * model(b))

    return model, step
