"""Gradient times input and integrated gradients of an evaluated network: attributions are derivatives that are read."""

import torch
from torch import nn

VALUES = True


def make(rng):
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(576, 10),
    ).eval()

    def step(i):
        data = torch.Generator().manual_seed(i)
        image = torch.rand(4, 3, 16, 16, generator=data)
        total = torch.zeros_like(image)
        for share in (0.25, 0.5, 0.75, 1.0):
            x = (image * share).requires_grad_()
            model(x)[:, 3].sum().backward()
            total = total + x.grad
        model.zero_grad()
        return None, [image * total]

    return model, step
