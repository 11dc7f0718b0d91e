"""A small convolutional network on the handwritten digits that come with scikit-learn, 8 x 8 pixels; SGD."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from . import Workload
from .parts import checkpoint_each


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    def layer(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())

    layers = nn.Sequential(layer(1, 32), layer(32, 32), nn.MaxPool2d(2), layer(32, 64), nn.Dropout(0.25))
    model = nn.Sequential(layers, nn.Flatten(), nn.Linear(64 * 16, 64), nn.GELU(), nn.Linear(64, 10))
    if checkpoint:
        checkpoint_each(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    digits = load_digits()
    images = torch.from_numpy(digits.images).float()[:, None] / 8 - 1
    labels = torch.from_numpy(digits.target).long()

    def make_batch(step):
        random = torch.Generator().manual_seed(seed * 1_000_003 + step)
        chosen = torch.randint(len(labels), (batch,), generator=random)
        return images[chosen], labels[chosen]

    return Workload(model, optimizer, make_batch, lambda data: nn.functional.cross_entropy(model(data[0]), data[1]))
