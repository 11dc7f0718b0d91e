"""Swin-T as torchvision builds it; AdamW."""

import torch
import torchvision
from torchvision.models.swin_transformer import SwinTransformerBlock

from . import Workload
from .parts import classify_images


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = torchvision.models.swin_t(weights=None, num_classes=1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05)
    return classify_images(model, SwinTransformerBlock, optimizer, batch, checkpoint, seed)
