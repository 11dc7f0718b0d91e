"""Jensen-Shannon divergence of a view and a kept one that nearly agree: logs of a mixture whose differences are
tiny."""

import torch


def jensen_shannon(p, q):
    mixture = ((p + q) / 2).clamp(1e-7, 1).log()
    return (
        torch.nn.functional.kl_div(mixture, p, reduction="batchmean")
        + torch.nn.functional.kl_div(mixture, q, reduction="batchmean")
    ) / 2


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))

    def step(i):
        data = torch.Generator().manual_seed(i)
        logits = 4 * model(torch.randn(96, 32, generator=data))
        p = torch.softmax(logits, -1)
        q = torch.softmax(logits.detach() + 0.1 * torch.randn(96, 64, generator=data), -1)
        return jensen_shannon(p, q)

    return model, step
