"""Forces by energy.backward() and the positions' .grad, with a fresh leaf at every step: an accumulating pass whose
result is read."""

import torch

VALUES = True


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.SiLU(), torch.nn.Linear(64, 64), torch.nn.SiLU(), torch.nn.Linear(64, 1)
    )
    centres = torch.linspace(0.5, 3, 16)
    for parameter in model.parameters():
        parameter.requires_grad_(False)

    def step(i):
        positions = (2 * torch.randn(20, 3, generator=torch.Generator().manual_seed(i))).requires_grad_()
        distance = torch.pdist(positions)
        energy = model(torch.exp(-4 * (distance[:, None] - centres) ** 2)).sum()
        energy.backward()
        return None, [-positions.grad]

    return model, step
