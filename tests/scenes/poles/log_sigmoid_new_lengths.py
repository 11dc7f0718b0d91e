"""log(sigmoid(u) + 1e-8) with another last dimension each time, 1200 in all: a rule that learns by shape cannot predict the
next one."""

import torch


def nll(u):
    return -torch.log(torch.sigmoid(u) + 1e-8).mean()


def make(rng):
    leaf = (4 * torch.randn(4200, generator=rng)).requires_grad_()

    def step(i):
        return sum(nll(leaf[:length]) for length in range(300 + 200 * i, 500 + 200 * i)) / 200

    return [leaf], step
