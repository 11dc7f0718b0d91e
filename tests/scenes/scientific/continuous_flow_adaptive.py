"""A continuous normalising flow: the trace by autograd.grad within the forward pass steers an adaptive solver's
steps."""

import torch

VALUES = True


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)
    )

    def rate(z):
        z = z if z.requires_grad else z.requires_grad_()
        f = model(z)
        trace = sum(torch.autograd.grad(f[:, k].sum(), z, create_graph=True)[0][:, k] for k in range(4))
        return f, trace

    def step(i):
        z = torch.randn(48, 4, generator=torch.Generator().manual_seed(i))
        log_density, t, h, evaluations = torch.zeros(48), 0.0, 0.5, 0
        while t < 1 - 1e-9 and evaluations < 60:
            h = min(h, 1 - t)
            f1, trace1 = rate(z)
            f2, trace2 = rate(z + h * f1)
            evaluations += 2
            error = float((h / 2 * (f2 - f1)).abs().max())
            if error < 2e-2:
                z, log_density, t = z + h / 2 * (f1 + f2), log_density - h / 2 * (trace1 + trace2), t + h
            h *= min(2.0, max(0.3, 0.9 * (2e-2 / (error + 1e-12)) ** 0.5))
        loss = (0.5 * z.square().sum(-1) - log_density).mean()
        return loss, [z, log_density, torch.tensor(float(evaluations))]

    return model, step
