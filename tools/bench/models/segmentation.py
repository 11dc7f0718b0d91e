"""torchvision's LR-ASPP on MobileNetV3: 21 classes for each pixel of 160 x 160 images, full resolution; SGD."""

import torch
import torchvision
from torchvision.models.mobilenetv3 import InvertedResidual

from . import Workload
from .parts import ImageBatches, checkpoint_each

CLASSES = 21


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=CLASSES
    )
    if checkpoint:
        checkpoint_each(m for m in model.modules() if isinstance(m, InvertedResidual))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    batches = ImageBatches(batch, seed, side=160)

    def make_batch(step):
        """A pixel's class is its brightness, in 21 steps."""
        images, _ = batches(step)
        return images, ((images.mean(1) + 1) / 2 * CLASSES).long().clamp_(0, CLASSES - 1)

    def loss(data):
        images, labels = data
        return torch.nn.functional.cross_entropy(model(images)["out"], labels)

    return Workload(model, optimizer, make_batch, loss)
