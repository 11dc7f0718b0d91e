"""A TorchScript function that ends in a logarithm, called eagerly twice per step: its graph saves by one node of its
own."""

import torch


@torch.jit.script
def nll(p, target):
    return -(target * torch.log(p + 1e-7) + (1 - target) * torch.log(1 - p + 1e-7)).mean()


def loss_of(u, target):
    return nll(torch.sigmoid(u), target)


def make(rng):
    model = torch.nn.Linear(32, 128)

    def step(i):
        data = torch.Generator().manual_seed(i)
        u = 5 * model(torch.randn(64, 32, generator=data))
        target = (torch.rand(64, 128, generator=data) < 0.2).float()
        return loss_of(u, target) + 0.5 * loss_of(-u, 1 - target)

    return model, step
