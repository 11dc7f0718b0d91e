"""A student learns the centred, sharpened softmax of a teacher that is its moving average: a cross entropy of softmaxes at
temperatures of 0.04 and 0.1."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 48))
        self.last = nn.Linear(48, 256, bias=False)

    def forward(self, x):
        return self.last(F.normalize(self.trunk(x), dim=-1))


def make(rng):
    student = Network()
    teacher = copy.deepcopy(student).requires_grad_(False)
    model = nn.ModuleDict({"student": student, "teacher": teacher})
    model.register_buffer("centre", torch.zeros(1, 256))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(96, 64, generator=generator)
        first, second = (x + 0.3 * torch.randn(x.shape, generator=generator) for _ in range(2))
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters()):
                slow.lerp_(fast, 0.004)
            raw = teacher(second)
            target = F.softmax((raw - model.centre) / 0.04, dim=-1)
            model.centre.lerp_(raw.mean(0, keepdim=True), 0.1)
        return -(target * F.log_softmax(student(first) / 0.1, dim=-1)).sum(-1).mean()

    return model, step
