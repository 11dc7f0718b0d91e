"""PReLU behind a ReLU: more than half of its arguments are exactly 0, where it takes the learned slope."""

import torch


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 96), torch.nn.Threshold(0.0, 0.0), torch.nn.PReLU(96), torch.nn.Linear(96, 8)
    )
    skip = torch.nn.Linear(32, 96)
    model.skip = skip

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(64, 32, generator=data)
        kept = model[1](model[0](x))
        zero = skip(x)
        return model[3](model[2](kept + (zero - zero.detach()))).square().mean()

    return model, step
