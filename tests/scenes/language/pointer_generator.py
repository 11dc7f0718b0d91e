"""A pointer-generator: a learned gate mixes the vocabulary's softmax with attention that scatter adds to words, then a log."""

import torch
from torch import nn


class PointerGenerator(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True)
        self.query, self.gate, self.head = nn.Linear(width, width), nn.Linear(2 * width, 1), nn.Linear(2 * width, words)
        with torch.no_grad():
            self.query.weight.mul_(12)
            self.head.weight.mul_(20)

    def forward(self, source, target):
        memory = self.rnn(self.embedding(source))[0]
        state = self.rnn(self.embedding(target))[0]
        weights = torch.softmax(self.query(state) @ memory.transpose(1, 2), dim=-1)
        both = torch.cat([state, weights @ memory], dim=-1)
        gate = torch.sigmoid(self.gate(both))
        generated = gate * torch.softmax(self.head(both), dim=-1)
        copied = (1 - gate) * weights
        return generated.scatter_add(2, source[:, None].expand_as(copied), copied)


def make(rng):
    model = PointerGenerator(96, 48)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        source = torch.randint(96, (8, 32), generator=generator)
        target = source[:, :17].roll(3, 1)
        words = model(source, target[:, :-1]).gather(2, target[:, 1:, None])
        return -torch.log(words + 1e-10).mean()

    return model, step
