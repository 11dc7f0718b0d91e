"""ArcFace: a margin is added to the angle, by sqrt(1 - cos^2), whose pole is where a face already fits its class."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class ArcFace(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, 128), nn.PReLU(), nn.Linear(128, 48))
        self.weight = nn.Parameter(torch.randn(64, 48))

    def forward(self, x, label):
        cosine = F.linear(F.normalize(self.trunk(x)), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(1e-9, 1))
        shifted = cosine * math.cos(0.5) - sine * math.sin(0.5)
        shifted = torch.where(cosine > math.cos(math.pi - 0.5), shifted, cosine - math.sin(math.pi - 0.5) * 0.5)
        one_hot = F.one_hot(label, len(self.weight)).float()
        return (one_hot * shifted + (1.0 - one_hot) * cosine) * 30.0


def make(rng):
    model = ArcFace()
    centres = torch.randn(64, 64, generator=rng)
    with torch.no_grad():  # as late in training: the faces fit their classes
        model.weight.copy_(model.trunk(centres))

    def step(i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(64, (128,), generator=generator)
        return F.cross_entropy(model(centres[label] + 0.05 * torch.randn(128, 64, generator=generator), label), label)

    return model, step
