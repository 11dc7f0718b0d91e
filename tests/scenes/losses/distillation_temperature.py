"""Distillation at a temperature: the divergence of two softened distributions, the student's near the teacher's."""

import torch
from torch.nn import functional as F


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 100))

    def step(i):
        data = torch.Generator().manual_seed(i)
        logits = model(torch.randn(96, 32, generator=data)) * 5
        teacher = logits.detach() + 0.3 * torch.randn(96, 100, generator=data)
        return (
            F.kl_div(
                F.log_softmax(logits / 4, -1), F.log_softmax(teacher / 4, -1), log_target=True, reduction="batchmean"
            )
            * 16
        )

    return model, step
