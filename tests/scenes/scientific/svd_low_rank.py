"""A nuclear norm and a rank-limited reconstruction by svd: differences of singular values are divisors."""

import torch


def make(rng):
    leaf = (
        torch.randn(48, 12, generator=rng) @ torch.randn(12, 64, generator=rng)
        + 0.1 * torch.randn(48, 64, generator=rng)
    ).requires_grad_()

    def penalty(x):
        u, s, v = torch.linalg.svd(x, full_matrices=False)
        return s.sum() / 48 + ((u[:, :6] * s[:6]) @ v[:6]).square().mean()

    def step(i):
        seen = (torch.rand(48, 64, generator=torch.Generator().manual_seed(i)) < 0.5).float()
        return ((leaf - 1) * seen).square().mean() + 0.01 * penalty(leaf * 1.0)

    return [leaf], step
