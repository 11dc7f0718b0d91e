"""Two backward passes over one retained graph whose losses share a gate; the second one's pole is below the first
one's layer."""

import torch


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(48, 96), torch.nn.Linear(96, 10)])

    def step(i):
        data = torch.Generator().manual_seed(i)
        gate = torch.sigmoid(5 * model[0](torch.randn(96, 48, generator=data)))
        first = torch.nn.functional.cross_entropy(model[1](gate), torch.randint(10, (96,), generator=data))
        return torch.stack([first, -torch.log(gate + 1e-6).mean()]).sum()

    return model, step


def backward(loss, i):
    loss.backward(retain_graph=True)
    loss.backward()
