"""A small torchvision DenseNet, growth 16, three blocks, 96 x 96; SGD with momentum."""

import torch
import torchvision
from torchvision.models.densenet import _DenseLayer

from . import Workload
from .parts import ImageBatches, checkpoint_each


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = torchvision.models.DenseNet(growth_rate=16, block_config=(4, 6, 6), num_init_features=32, num_classes=10)
    if checkpoint:
        checkpoint_each(m for m in model.modules() if isinstance(m, _DenseLayer))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

    def loss(data):
        images, labels = data
        return torch.nn.functional.cross_entropy(model(images), labels)

    return Workload(model, optimizer, ImageBatches(batch, seed, side=96), loss)
