"""ResNet-50 as torchvision builds it; SGD with momentum."""

import torch
import torchvision

from . import Workload
from .parts import classify_images


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = torchvision.models.resnet50(weights=None, num_classes=1000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=1e-4)
    return classify_images(model, torchvision.models.resnet.Bottleneck, optimizer, batch, checkpoint, seed)
