"""LayerNorms of a pre-norm transformer block on an even residual stream: noise here is harmless and must be taken."""

import torch
from torch import nn


def make(rng):
    block = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
    model = nn.Sequential(nn.Embedding(100, 64), block, nn.LayerNorm(64), nn.Linear(64, 100))

    def step(i):
        tokens = torch.randint(100, (4, 24), generator=torch.Generator().manual_seed(i))
        return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())

    return model, step
