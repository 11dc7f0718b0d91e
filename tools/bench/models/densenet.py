"""A small torchvision DenseNet, growth 16, three blocks, 96 x 96; SGD with momentum."""

import torch
import torchvision
from torchvision.models.densenet import _DenseBlock

from . import Workload
from .parts import classify_images


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = torchvision.models.DenseNet(growth_rate=16, block_config=(4, 6, 6), num_init_features=32, num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    return classify_images(model, _DenseBlock, optimizer, batch, checkpoint, seed, side=96)
