"""Two layers of torch's own GRU with dropout between them, over sequences of unequal length."""

import torch
from torch import nn
from torch.nn import functional as F


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(96, 48), nn.GRU(48, 64, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(64, 96)

    def forward(self, tokens, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        hidden = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=tokens.shape[1])[0]
        return self.head(hidden)


def make(rng):
    model = Tagger()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = (torch.randint(96, (12, 1), generator=generator) + torch.arange(25) * 5) % 96
        lengths = torch.randint(12, 25, (12,), generator=generator)
        label = torch.where(torch.arange(24) < lengths[:, None], tokens[:, 1:], -100)
        return F.cross_entropy(model(tokens[:, :-1], lengths).flatten(0, 1), label.flatten())

    return model, step
