"""A function in Python between a sigmoid and a logarithm: no proof passes through it."""

import torch


class Blend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, p, q):
        ctx.save_for_backward(p, q)
        return p * q

    @staticmethod
    def backward(ctx, gradient):
        p, q = ctx.saved_tensors
        return gradient * q, gradient * p


def loss_of(u, v):
    return -torch.log(Blend.apply(torch.sigmoid(u), torch.sigmoid(v)) + 1e-7).mean()


def make(rng):
    model = torch.nn.Linear(32, 192)

    def step(i):
        u, v = (5 * model(torch.randn(64, 32, generator=torch.Generator().manual_seed(i)))).chunk(2, -1)
        return loss_of(u, v)

    return model, step
