"""EfficientNet-B0 as torchvision builds it, 96 x 96; AdamW."""

import torch
import torchvision
from torchvision.models.efficientnet import MBConv

from . import Workload
from .parts import classify_images


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = torchvision.models.efficientnet_b0(weights=None, num_classes=10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    return classify_images(model, MBConv, optimizer, batch, checkpoint, seed, side=96)
