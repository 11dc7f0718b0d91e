"""One minus the cosine of a student and its teacher that nearly agree (distillation, BYOL): the gradient is a small
difference."""

import torch


def make(rng):
    student = torch.nn.Sequential(torch.nn.Linear(32, 96), torch.nn.ReLU(), torch.nn.Linear(96, 128))
    teacher = [p.detach().clone() for p in student.parameters()]

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(64, 32, generator=data)
        with torch.no_grad():
            wanted = torch.relu(x @ teacher[0].T + teacher[1]) @ teacher[2].T + teacher[3]
            wanted = wanted + 0.03 * torch.randn(wanted.shape, generator=data)
        return (2 - 2 * torch.nn.functional.cosine_similarity(student(x), wanted, dim=-1)).mean()

    return student, step
