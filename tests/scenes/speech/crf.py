"""A linear-chain CRF over a GRU's scores: logsumexp over the last tag, once a step, less the score of the right path."""

import torch
from torch import nn


class Crf(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.transitions = nn.Parameter(0.5 * torch.randn(tags, tags))
        self.start, self.end = nn.Parameter(0.1 * torch.randn(tags)), nn.Parameter(0.1 * torch.randn(tags))

    def score(self, emissions, tags):
        picked = emissions.gather(2, tags[:, :, None]).squeeze(2).sum(1)
        moves = self.transitions[tags[:, :-1], tags[:, 1:]].sum(1)
        return picked + moves + self.start[tags[:, 0]] + self.end[tags[:, -1]]

    def partition(self, emissions):
        alpha = self.start + emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + self.transitions + emissions[:, t, None, :], dim=1)
        return torch.logsumexp(alpha + self.end, dim=1)

    def forward(self, emissions, tags):
        return (self.partition(emissions) - self.score(emissions, tags)).mean()


def make(rng):
    model = nn.ModuleDict({"words": nn.Embedding(96, 32), "rnn": nn.GRU(32, 32, batch_first=True, bidirectional=True), "head": nn.Linear(64, 9), "crf": Crf(9)})

    def step(i):
        generator = torch.Generator().manual_seed(i)
        words = torch.randint(96, (12, 24), generator=generator)
        emissions = model["head"](model["rnn"](model["words"](words))[0])
        return model["crf"](emissions, (words + words.roll(1, 1)) % 9) / 24

    return model, step
