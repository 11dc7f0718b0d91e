"""The first token of a text has two channels a thousand times the others, which the next layer reads through columns a thousand
times smaller: attention sinks of trained language models."""

import torch
from torch import nn
from torch.nn import functional as F

BAR, COLUMNS = 0.2, True
MASSIVE = [3, 200]


def make(rng):
    model = nn.Sequential(nn.Embedding(100, 512), nn.Linear(512, 64), nn.GELU(), nn.Linear(64, 100))
    with torch.no_grad():
        model[0].weight[0, MASSIVE] *= 1000
        model[1].weight[:, MASSIVE] /= 1000

    def step(i):
        tokens = torch.randint(1, 100, (256,), generator=torch.Generator().manual_seed(i))
        tokens[0] = 0
        return F.cross_entropy(model(tokens), tokens.roll(-1))

    return model, step
