"""Cross entropy over two classes of which the right one leads by 12: softmax less one is 6e-6."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))

    def step(i):
        data = torch.Generator().manual_seed(i)
        target = torch.randint(2, (500,), generator=data)
        lead = torch.nn.functional.one_hot(target, 2) * 12.0
        return torch.nn.functional.cross_entropy(model(torch.randn(500, 48, generator=data)) + lead, target)

    return model, step
