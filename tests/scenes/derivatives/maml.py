"""MAML: one inner step by autograd.grad with create_graph over the weights, then the outer loss through it."""

import torch
from torch.nn import functional as F



def make(rng):
    leaves = [
        0.5 * torch.randn(1, 40, generator=rng),
        torch.zeros(40),
        0.2 * torch.randn(40, 40, generator=rng),
        torch.zeros(40),
        0.2 * torch.randn(40, 1, generator=rng),
    ]
    leaves = [leaf.requires_grad_() for leaf in leaves]

    def network(x, w1, b1, w2, b2, w3):
        return torch.tanh(torch.tanh(x @ w1 + b1) @ w2 + b2) @ w3

    def step(i):
        data = torch.Generator().manual_seed(i)
        loss = 0
        for _ in range(3):
            phase = 3 * torch.rand(1, generator=data)
            x, y = (4 * torch.rand(64, 1, generator=data) - 2 for _ in range(2))
            inner = F.mse_loss(network(x, *leaves), torch.sin(2 * x + phase))
            gradients = torch.autograd.grad(inner, leaves, create_graph=True)
            adapted = [leaf - 0.2 * g for leaf, g in zip(leaves, gradients)]
            loss = loss + F.mse_loss(network(y, *adapted), torch.sin(2 * y + phase))
        return loss

    return leaves, step
