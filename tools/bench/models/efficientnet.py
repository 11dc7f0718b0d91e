"""EfficientNet-B0 as torchvision builds it, 96 x 96; AdamW."""

import torch
import torchvision
from torchvision.models.efficientnet import MBConv

from . import Workload
from .parts import ImageBatches, checkpoint_each


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = torchvision.models.efficientnet_b0(weights=None, num_classes=10)
    if checkpoint:
        checkpoint_each(m for m in model.modules() if isinstance(m, MBConv))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def loss(data):
        images, labels = data
        return torch.nn.functional.cross_entropy(model(images), labels)

    return Workload(model, optimizer, ImageBatches(batch, seed, side=96), loss)
