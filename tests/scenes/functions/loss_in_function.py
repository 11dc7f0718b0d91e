"""An eager sigmoid whose loss -log(1 - p + 1e-7) is a function in Python that saves p: its pole is invisible."""

import torch


class NotLog(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p):
        ctx.save_for_backward(p)
        return -torch.log(1 - p + 1e-7)

    @staticmethod
    def backward(ctx, gradient):
        (p,) = ctx.saved_tensors
        return gradient / (1 - p + 1e-7)


def loss_of(u):
    return NotLog.apply(torch.sigmoid(u)).mean()


def make(rng):
    model = torch.nn.Linear(32, 128)

    def step(i):
        return loss_of(5 * model(torch.randn(64, 32, generator=torch.Generator().manual_seed(i))) + 3)

    return model, step
