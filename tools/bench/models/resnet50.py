"""ResNet-50 as torchvision builds it; SGD with momentum."""

import torch
import torchvision

from . import Workload
from .parts import ImageBatches, checkpoint_each


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = torchvision.models.resnet50(weights=None, num_classes=1000)
    if checkpoint:
        checkpoint_each(m for m in model.modules() if isinstance(m, torchvision.models.resnet.Bottleneck))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=1e-4)

    def loss(data):
        images, labels = data
        return torch.nn.functional.cross_entropy(model(images), labels)

    return Workload(model, optimizer, ImageBatches(batch, seed), loss)
