"""Jensen-Shannon divergence of two views that nearly agree (AugMix): logs of a mixture whose differences are tiny."""

import torch


def jensen_shannon(p, q):
    mixture = ((p + q) / 2).clamp(1e-7, 1).log()
    return (torch.nn.functional.kl_div(mixture, p, reduction="batchmean") + torch.nn.functional.kl_div(mixture, q, reduction="batchmean")) / 2


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(96, 32, generator=data)
        p = torch.softmax(4 * model(x), -1)
        q = torch.softmax(4 * model(x + 0.05 * torch.randn(96, 32, generator=data)), -1)
        return jensen_shannon(p, q)

    return model, step
