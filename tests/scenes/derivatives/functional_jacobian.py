"""torch.func: a Jacobian by vmap of a vjp and a Hessian's trace, of an implicit layer's function."""

import torch
from torch.func import functional_call, jacrev, vmap

VALUES = True


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(8, 48), torch.nn.Tanh(), torch.nn.Linear(48, 8))

    def step(i):
        x = torch.randn(24, 8, generator=torch.Generator().manual_seed(i))
        parameters = dict(model.named_parameters())
        jacobian = vmap(jacrev(lambda row: functional_call(model, parameters, (row,))))(x)
        divergence = jacobian.diagonal(dim1=-2, dim2=-1).sum(-1)
        return divergence.square().mean() + model(x).square().mean(), [jacobian]

    return model, step
