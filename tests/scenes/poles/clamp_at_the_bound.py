"""clamp(image + delta, 0, 1) with delta = 0, as attacks begin: half of the pixels are at the bound, where the slope is a
choice."""

import torch

OPTIMISER = lambda parameters: torch.optim.SGD(parameters, 1e-7)  # delta stays at the bounds


def make(rng):
    delta = torch.nn.Parameter(torch.zeros(4, 3, 16, 16))
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(2048, 10)
    )
    model.delta = delta
    image = (torch.rand(4, 3, 16, 16, generator=rng) * 2 - 0.5).clamp(0, 1)

    def step(i):
        target = torch.randint(10, (4,), generator=torch.Generator().manual_seed(i))
        seen = torch.clamp(image + delta, 0, 1)
        return torch.nn.functional.cross_entropy(model(seen), target)

    return model, step
