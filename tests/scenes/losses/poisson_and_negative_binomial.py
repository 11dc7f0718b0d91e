"""Counts: a Poisson likelihood saves an exponential, a negative binomial one logs and lgamma of a softplus's result."""

import torch


def negative_binomial(mean, dispersion, count):
    r = 1 / dispersion
    return -(
        torch.lgamma(count + r) - torch.lgamma(r) + r * torch.log(r / (r + mean)) + count * torch.log(mean / (r + mean))
    ).mean()


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.ReLU(), torch.nn.Linear(64, 96))

    def step(i):
        data = torch.Generator().manual_seed(i)
        rate, mean, dispersion = (2 * model(torch.randn(96, 24, generator=data))).chunk(3, -1)
        count = torch.poisson(torch.full((96, 32), 3.0), generator=data)
        first = torch.nn.functional.poisson_nll_loss(rate, count)
        return first + negative_binomial(
            torch.nn.functional.softplus(mean) + 1e-3, torch.nn.functional.softplus(dispersion) + 1e-2, count
        )

    return model, step
