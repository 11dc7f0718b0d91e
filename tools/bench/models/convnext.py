"""A small torchvision ConvNeXt, widths 48 to 192, eight blocks, 96 x 96; AdamW."""

import torch
import torchvision
from torchvision.models.convnext import CNBlock, CNBlockConfig

from . import Workload
from .parts import classify_images


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    stages = [CNBlockConfig(48, 96, 2), CNBlockConfig(96, 192, 2), CNBlockConfig(192, None, 4)]
    model = torchvision.models.ConvNeXt(stages, stochastic_depth_prob=0.1, num_classes=10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05)
    return classify_images(model, CNBlock, optimizer, batch, checkpoint, seed, side=96)
