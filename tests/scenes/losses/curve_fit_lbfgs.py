"""A decay curve fitted by L-BFGS: each iteration's gradient is a sum of small residuals, and the line search trusts
it."""

import torch

VALUES = True


def make(rng):
    leaves = [torch.tensor([2.0, 0.7, 0.3]).requires_grad_()]
    t = torch.linspace(0, 6, 512)

    def residuals(theta, y):
        return theta[0] * torch.exp(-theta[1] * t) + theta[2] - y

    def step(i):
        data = torch.Generator().manual_seed(i)
        y = 2.5 * torch.exp(-0.9 * t) + 0.2 + 0.01 * torch.randn(512, generator=data)
        theta = leaves[0].detach().clone().requires_grad_()
        optimiser = torch.optim.LBFGS([theta], max_iter=8, line_search_fn="strong_wolfe")

        def closure():
            optimiser.zero_grad()
            loss = residuals(theta, y).square().mean()
            loss.backward()
            return loss

        optimiser.step(closure)
        return residuals(leaves[0], y).square().mean(), [theta.detach()]

    return leaves, step
