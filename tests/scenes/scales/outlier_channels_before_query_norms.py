"""Queries are normalised by row after their projection (Qwen 3, Gemma 3), whose inputs have outlier channels, as in every
trained language model of some size, and rows of different sizes. A channel that is large in every row has as many steps as
the others then; one that is large in a few rows does not drown in the rest."""

import torch
from torch import nn
from torch.nn import functional as F

BAR, COLUMNS = 0.2, True
OUTLIERS, RARE = [3, 50, 100, 150, 200, 310], 77


def make(rng):
    model = nn.ModuleList([nn.Embedding(100, 384), nn.Linear(384, 64, bias=False), nn.Linear(64, 100)])
    with torch.no_grad():
        model[0].weight[:, OUTLIERS] *= 30
        model[0].weight[::10, RARE] *= 30
        model[0].weight[::7] *= 0.1
        model[1].weight[:, OUTLIERS] /= 30

    def step(i):
        tokens = torch.randint(100, (256,), generator=torch.Generator().manual_seed(i))
        return F.cross_entropy(model[2](F.rms_norm(model[1](model[0](tokens) * 1.0), (64,))), tokens.roll(-1))

    return model, step
