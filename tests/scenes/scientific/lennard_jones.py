"""A Lennard-Jones fluid with learned radii: twelfth powers of inverse distances, whose gradients span many
magnitudes."""

import torch


def make(rng):
    leaves = [(torch.rand(64, 3, generator=rng) * 5).requires_grad_(), torch.zeros(64).requires_grad_()]
    a, b = torch.triu_indices(64, 64, 1)

    def energy(positions, raw):
        sigma = torch.exp(raw)
        squared = (positions[a] - positions[b]).square().sum(-1) + 0.5
        ratio = (0.5 * (sigma[a] + sigma[b])).square() / squared
        return 4 * (ratio**6 - ratio**3).sum()

    def step(i):
        moved = leaves[0] + 0.05 * torch.randn(64, 3, generator=torch.Generator().manual_seed(i))
        return energy(moved, leaves[1]) / 64

    return leaves, step
