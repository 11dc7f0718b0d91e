"""Cosine similarities of context and a hundred negatives at temperature 0.1, over a masked transformer layer."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, 32, 10, 5), nn.GroupNorm(32, 32), nn.GELU(), nn.Conv1d(32, 48, 3, 2), nn.GELU())
        self.norm, self.mask = nn.LayerNorm(48), nn.Parameter(torch.rand(48))
        self.context = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.0, activation="gelu", batch_first=True)
        self.project, self.target = nn.Linear(48, 32), nn.Linear(48, 32)

    def forward(self, x, masked):
        features = self.norm(self.features(x[:, None]).transpose(1, 2))
        context = self.context(torch.where(masked[:, :, None], self.mask, features))
        return self.project(context)[masked], self.target(features)[masked]


def make(rng):
    model = Model()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(6, 512, generator=generator)
        x = x + x.roll(1, 1) + torch.sin(torch.arange(512) * 0.3 * torch.rand(6, 1, generator=generator))
        x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
        masked = torch.rand(6, 50, generator=generator) < 0.4
        context, target = model(x, masked)
        number = torch.randint(len(target), (len(target), 48), generator=generator)
        candidates = torch.cat([target[:, None], target[number]], dim=1)
        scores = torch.cosine_similarity(context[:, None], candidates, dim=-1) / 0.1
        return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))

    return model, step
