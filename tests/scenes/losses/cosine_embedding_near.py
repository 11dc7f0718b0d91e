"""Cosine embedding loss of pairs that are nearly parallel: the gradient is the small rest of two vectors that cancel."""

import torch


def make(rng):
    trunk = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 96))

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(64, 32, generator=data)
        out = trunk(x)
        near = out.detach() + 0.02 * torch.randn(64, 96, generator=data)
        return torch.nn.functional.cosine_embedding_loss(out, near, torch.ones(64))

    return trunk, step
