"""log of ten kinds of activation, each with new lengths: learning from one does not help the next."""

import torch
from torch.nn import functional as F

KINDS = [
    torch.sigmoid, F.softplus, lambda u: torch.tanh(u) + 1, lambda u: F.elu(u) + 1, F.hardsigmoid, lambda u: F.gelu(u) + 0.2,
    lambda u: F.silu(u) + 0.3, lambda u: torch.erf(u) + 1, lambda u: F.celu(u) + 1, lambda u: F.softsign(u) + 1,
]  # fmt: skip


def nll(kind, u):
    return -torch.log(kind(u) + 1e-6).mean()


def make(rng):
    leaves = [(3 * torch.randn(700, generator=rng)).requires_grad_() for _ in KINDS]

    def step(i):
        return sum(nll(kind, leaf[:n]) for n in range(300 + 5 * i, 305 + 5 * i) for kind, leaf in zip(KINDS, leaves))

    return leaves, step
