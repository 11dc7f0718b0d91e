"""A function in Python that can be differentiated twice, under a gradient penalty: its backward records operators."""

import torch

VALUES = True


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(24, 64), torch.nn.Linear(64, 1)])

    def step(i):
        x = torch.randn(96, 24, generator=torch.Generator().manual_seed(i)).requires_grad_()
        out = model[1](Cube.apply(torch.tanh(model[0](x))))
        slope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
        return out.square().mean() + slope.square().sum(-1).mean(), [slope]

    return model, step
