"""Three steps of projected gradient descent on the input, by loss.backward() and delta.grad.sign(), before each
training step."""

import torch
from torch import nn

VALUES = True


def make(rng):
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(768, 10),
    )

    def attack(image, target):
        delta = torch.zeros_like(image).requires_grad_()
        for _ in range(3):
            nn.functional.cross_entropy(model(image + delta), target).backward()
            delta.data = (delta + 0.02 * delta.grad.sign()).clamp(-0.05, 0.05)
            delta.grad = None
        model.zero_grad()
        return delta.detach()

    def step(i):
        data = torch.Generator().manual_seed(i)
        image, target = torch.rand(8, 3, 16, 16, generator=data), torch.randint(10, (8,), generator=data)
        delta = attack(image, target)
        return nn.functional.cross_entropy(model(image + delta), target), [delta]

    return model, step
