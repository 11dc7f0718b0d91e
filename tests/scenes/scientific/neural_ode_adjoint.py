"""A neural ODE by the adjoint method with an adaptive solver at rtol 1e-6: each backward evaluation is a gradient the
solver trusts."""

import torch

VALUES = True


def adaptive(f, state, t0, t1, tolerance=1e-6, limit=400):
    """Heun with an error estimate: the state at t1 and how many steps were tried."""
    t, h, tried = t0, (t1 - t0) / 10, 0
    while abs(t1 - t) > 1e-9 and tried < limit:
        h = h if abs(h) < abs(t1 - t) else t1 - t
        tried += 1
        k1 = f(t, state)
        k2 = f(t + h, [s + h * k for s, k in zip(state, k1)])
        error = max(float((h / 2 * (b - a)).abs().max() / (1e-3 + s.abs().max())) for a, b, s in zip(k1, k2, state))
        if error < tolerance * 1e3:
            t, state = t + h, [s + h / 2 * (a + b) for s, a, b in zip(state, k1, k2)]
        h = h * min(2.0, max(0.3, 0.9 * (tolerance * 1e3 / (error + 1e-12)) ** 0.5))
    return state, tried


class Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, model, counts, *parameters):
        with torch.no_grad():
            (end,), tried = adaptive(lambda t, s: [model(s[0])], [y], 0.0, 1.0)
        ctx.model, ctx.counts = model, counts
        counts.append(tried)
        ctx.save_for_backward(end)
        return end

    @staticmethod
    def backward(ctx, gradient):
        (end,) = ctx.saved_tensors
        parameters = list(ctx.model.parameters())

        def flow(t, state):
            with torch.enable_grad():
                y = state[0].detach().requires_grad_()
                f = ctx.model(y)
            slopes = torch.autograd.grad(f, [y, *parameters], -state[1])
            return [f.detach(), *slopes]

        state, tried = adaptive(flow, [end, gradient, *map(torch.zeros_like, parameters)], 1.0, 0.0)
        ctx.counts.append(tried)
        return state[1], None, None, *state[2:]


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, 6))

    def step(i):
        data = torch.Generator().manual_seed(i)
        y, counts = torch.randn(32, 6, generator=data), []
        loss = (
            (Solve.apply(y.requires_grad_(), model, counts, *model.parameters()) - torch.randn(32, 6, generator=data))
            .square()
            .mean()
        )
        loss.backward()
        return None, [loss, torch.tensor(counts, dtype=torch.float32)]

    return model, step
