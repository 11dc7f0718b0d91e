"""Cross entropy where classes are masked by -1e4 (actions that are not allowed): log-probabilities of one group differ by
1e4."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 40))

    def step(i):
        data = torch.Generator().manual_seed(i)
        logits = model(torch.randn(96, 32, generator=data))
        allowed = torch.rand(96, 40, generator=data) < 0.7
        target = torch.multinomial(allowed.float(), 1, generator=data)[:, 0]
        return torch.nn.functional.cross_entropy(logits.masked_fill(~allowed, -1e4), target)

    return model, step
