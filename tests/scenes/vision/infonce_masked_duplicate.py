"""In-batch negatives of which one is a duplicate and masked with -1e4: the scores of its group span ten thousand, and their
exponentials are read for the loss."""

import torch
from torch import nn
from torch.nn import functional as F


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.question = nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 48))
        self.answer = nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 48))

    def forward(self, question, answer):
        return F.normalize(self.question(question), dim=1) @ F.normalize(self.answer(answer), dim=1).t() / 0.05


def loss_of(scores, same):
    scores = scores.masked_fill(same & ~torch.eye(len(same), dtype=torch.bool), -1e4)
    return (torch.logsumexp(scores, dim=1) - scores.diagonal()).mean()


def make(rng):
    model = Towers()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        number = torch.arange(128)
        number[17] = 90  # the duplicate
        x = torch.randn(128, 64, generator=generator)[number]
        scores = model(x, x + 0.1 * torch.randn(128, 64, generator=generator))
        return loss_of(scores, number[:, None] == number)

    return model, step
