"""A word-level language model of two torch LSTM layers, width 512; AdamW."""

import torch
from torch import nn

from . import Workload
from .parts import WordBatches, checkpoint_each

LAYERS, WIDTH, VOCABULARY, LENGTH = 2, 512, 4096, 64


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        # One module a layer, so that checkpointing has layers to wrap.
        self.layers = nn.ModuleList(nn.LSTM(WIDTH, WIDTH, batch_first=True) for _ in range(LAYERS))
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.dropout(self.embedding(tokens))
        for layer in self.layers:
            x = self.dropout(layer(x)[0])
        return self.head(x)


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = LanguageModel()
    if checkpoint:
        checkpoint_each(model.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss(tokens):
        logits = model(tokens[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return Workload(model, optimizer, WordBatches(batch, LENGTH + 1, VOCABULARY, seed), loss)
