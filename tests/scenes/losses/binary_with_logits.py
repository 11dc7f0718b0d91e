"""Binary cross entropy of logits with a weight for positives: the logits it saves enter an exponential."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.ReLU(), torch.nn.Linear(64, 96))

    def step(i):
        data = torch.Generator().manual_seed(i)
        target = (torch.rand(64, 96, generator=data) < 0.1).float()
        logits = 5 * model(torch.randn(64, 48, generator=data)) + (2 * target - 1) * 6
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, target, pos_weight=torch.full((96,), 4.0))

    return model, step
