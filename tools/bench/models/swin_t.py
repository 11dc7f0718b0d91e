"""Swin-T as torchvision builds it; AdamW."""

import torch
import torchvision
from torchvision.models.swin_transformer import SwinTransformerBlock

from . import Workload
from .parts import ImageBatches, checkpoint_each


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = torchvision.models.swin_t(weights=None, num_classes=1000)
    if checkpoint:
        checkpoint_each(m for m in model.modules() if isinstance(m, SwinTransformerBlock))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05)

    def loss(data):
        images, labels = data
        return torch.nn.functional.cross_entropy(model(images), labels)

    return Workload(model, optimizer, ImageBatches(batch, seed), loss)
