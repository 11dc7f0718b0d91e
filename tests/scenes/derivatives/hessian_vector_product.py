"""A Hessian times a vector over the weights, for influence functions and second-order optimisers: a value that is
read."""

import torch

VALUES = True


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
    parameters = list(model.parameters())

    def step(i):
        data = torch.Generator().manual_seed(i)
        x, target = torch.randn(96, 24, generator=data), torch.randint(10, (96,), generator=data)
        loss = torch.nn.functional.cross_entropy(model(x), target)
        gradients = torch.autograd.grad(loss, parameters, create_graph=True)
        vector = [torch.randn(p.shape, generator=data) for p in parameters]
        along = sum((g * v).sum() for g, v in zip(gradients, vector))
        return None, [loss, *torch.autograd.grad(along, parameters)]

    return model, step
