"""A small torchvision ConvNeXt, widths 48 to 192, eight blocks, 96 x 96; AdamW."""

import torch
import torchvision
from torchvision.models.convnext import CNBlock, CNBlockConfig

from . import Workload
from .parts import ImageBatches, checkpoint_each


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    stages = [CNBlockConfig(48, 96, 2), CNBlockConfig(96, 192, 2), CNBlockConfig(192, None, 4)]
    model = torchvision.models.ConvNeXt(stages, stochastic_depth_prob=0.1, num_classes=10)
    if checkpoint:
        checkpoint_each(m for m in model.modules() if isinstance(m, CNBlock))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05)

    def loss(data):
        images, labels = data
        return torch.nn.functional.cross_entropy(model(images), labels)

    return Workload(model, optimizer, ImageBatches(batch, seed, side=96), loss)
