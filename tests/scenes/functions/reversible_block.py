"""A reversible block as a function in Python: its backward reconstructs inputs from outputs and runs a backward of
its own."""

import torch


class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, f, g, *parameters):
        a, b = x.chunk(2, -1)
        with torch.no_grad():
            a = a + f(b)
            b = b + g(a)
        ctx.f, ctx.g = f, g
        out = torch.cat([a, b], -1)
        ctx.save_for_backward(out.detach())
        return out

    @staticmethod
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors[0].chunk(2, -1)
        da, db = gradient.chunk(2, -1)
        with torch.enable_grad():
            a = a.detach().requires_grad_()
            ga = ctx.g(a)
        slopes_g = torch.autograd.grad(ga, [a, *ctx.g.parameters()], db)
        b, da = b - ga.detach(), da + slopes_g[0]
        with torch.enable_grad():
            b = b.detach().requires_grad_()
            fb = ctx.f(b)
        slopes_f = torch.autograd.grad(fb, [b, *ctx.f.parameters()], da)
        return torch.cat([da, db + slopes_f[0]], -1), None, None, *slopes_f[1:], *slopes_g[1:]


def block():
    return torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.GELU(), torch.nn.Linear(96, 48))


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(24, 96), block(), block(), torch.nn.Linear(96, 10)])

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = model[0](torch.randn(64, 24, generator=data))
        x = Reversible.apply(x, model[1], model[2], *model[1].parameters(), *model[2].parameters())
        return torch.nn.functional.cross_entropy(model[3](x), torch.randint(10, (64,), generator=data))

    return model, step
