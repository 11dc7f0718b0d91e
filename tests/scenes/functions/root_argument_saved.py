"""A function in Python that saves the argument of a root and divides by it in its backward (RG-LRU's bounded square
root)."""

import torch


class BoundedRoot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sqrt(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / torch.sqrt((4.0 * x).clamp_min(1.0 / 1000.0**2))


def recurrence(model, x):
    gate, values = model[0](x).chunk(2, -1)
    log_a = -8.0 * torch.nn.functional.softplus(model.decay) * torch.sigmoid(gate)
    return model[1](values * BoundedRoot.apply(1 - torch.exp(2 * log_a)))


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(32, 192), torch.nn.Linear(96, 16)])
    model.decay = torch.nn.Parameter(torch.full((96,), -6.0))

    def step(i):
        data = torch.Generator().manual_seed(i)
        return (
            (recurrence(model, torch.randn(96, 32, generator=data)) - torch.randn(96, 16, generator=data))
            .square()
            .mean()
        )

    return model, step
