"""CLIP: two towers, features divided by their length, and the exponential of a learned temperature times their product."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(96, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64))
        self.text = nn.Sequential(nn.Linear(48, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64))
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image, text):
        image, text = self.image(image), self.text(text)
        image, text = image / image.norm(dim=1, keepdim=True), text / text.norm(dim=1, keepdim=True)
        return self.scale.exp() * image @ text.t()


def make(rng):
    model = Clip()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        shared = torch.randn(96, 24, generator=generator)
        image = torch.cat([shared, torch.randn(96, 72, generator=generator)], dim=1)
        text = torch.cat([shared.flip(1), torch.randn(96, 24, generator=generator)], dim=1)
        logits, label = model(image, text), torch.arange(96)
        return (F.cross_entropy(logits, label) + F.cross_entropy(logits.t(), label)) / 2

    return model, step
