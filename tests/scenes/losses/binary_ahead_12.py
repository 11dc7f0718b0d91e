"""Binary cross entropy of a probability where the logit is right by 12: p (1 - p) is 6e-6 and noise in p is 1e-3."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.ReLU(), torch.nn.Linear(64, 96))

    def step(i):
        data = torch.Generator().manual_seed(i)
        target = (torch.rand(64, 96, generator=data) < 0.5).float()
        logits = model(torch.randn(64, 48, generator=data)) + (2 * target - 1) * 12
        return torch.nn.functional.binary_cross_entropy(torch.sigmoid(logits), target)

    return model, step
