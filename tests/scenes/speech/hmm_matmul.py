"""A neural hidden Markov model: the forward algorithm by matrix products of probabilities, rescaled by the sum of each step
whose log is the loss."""

import torch
from torch import nn


class Hmm(nn.Module):
    def __init__(self, states, words, width):
        super().__init__()
        self.states = nn.Parameter(torch.randn(states, width))
        self.move, self.emit, self.words = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, words)
        self.following = nn.Parameter(torch.randn(states, width))

    def matrices(self):
        move = torch.softmax(torch.tanh(self.move(self.states)) @ self.following.t(), dim=-1)
        return move, torch.softmax(3 * self.words(torch.relu(self.emit(self.states))), dim=-1)

    def forward(self, text):
        move, emit = self.matrices()
        alpha, total = torch.full((len(text), len(move)), 1 / len(move)), 0
        for t in range(text.shape[1]):
            alpha = (alpha @ move) * emit.t()[text[:, t]]
            scale = alpha.sum(1, keepdim=True)
            alpha = alpha / scale
            total = total + torch.log(scale).mean()
        return -total / text.shape[1]


def make(rng):
    model = Hmm(48, 64, 32)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        text = (torch.randint(64, (16, 1), generator=generator) + 3 * torch.arange(20) + torch.randint(2, (16, 20), generator=generator)) % 64
        return model(text)

    return model, step
