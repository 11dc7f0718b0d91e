"""A function in today's style: setup_context, an output saved, an input marked not differentiable, gradients asked
for by need."""

import torch


class Softclip(torch.autograd.Function):
    @staticmethod
    def forward(x, low):
        out = low + torch.log1p(torch.exp(x - low))
        return out, out > 0

    @staticmethod
    def setup_context(ctx, inputs, outputs):
        out, side = outputs
        ctx.mark_non_differentiable(side)
        ctx.save_for_backward(out)
        ctx.low = inputs[1]

    @staticmethod
    def backward(ctx, gradient, _):
        if not ctx.needs_input_grad[0]:
            return None, None
        (out,) = ctx.saved_tensors
        return gradient * (1 - torch.exp(ctx.low - out)), None


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(32, 96), torch.nn.Linear(96, 8)])

    def step(i):
        data = torch.Generator().manual_seed(i)
        clipped, side = Softclip.apply(4 * model[0](torch.randn(96, 32, generator=data)), -1.0)
        return (model[1](clipped * side) - torch.randn(96, 8, generator=data)).square().mean()

    return model, step
