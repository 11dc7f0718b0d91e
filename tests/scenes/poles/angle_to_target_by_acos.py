"""The angle to a normalised target that is near, by acos of a product's sum: the gradient is the part of the target across
the prediction."""

import torch


def angle(out, target):
    a, b = torch.nn.functional.normalize(out, dim=-1), torch.nn.functional.normalize(target, dim=-1)
    return torch.acos((a * b).sum(-1).clamp(-1 + 1e-6, 1 - 1e-6)).mean()


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(24, 96), torch.nn.ReLU(), torch.nn.Linear(96, 48))

    def step(i):
        data = torch.Generator().manual_seed(i)
        out = model(torch.randn(96, 24, generator=data))
        return angle(out, out.detach() + 0.05 * torch.randn(96, 48, generator=data))

    return model, step
