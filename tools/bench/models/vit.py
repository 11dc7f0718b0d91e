"""A small torchvision vision transformer, 4 layers, width 192, 96 x 96 in patches of 8; AdamW."""

import torch
import torchvision
from torchvision.models.vision_transformer import EncoderBlock

from . import Workload
from .parts import classify_images


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = torchvision.models.VisionTransformer(
        image_size=96, patch_size=8, num_layers=4, num_heads=6, hidden_dim=192, mlp_dim=768, dropout=0.1, num_classes=10
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05)
    return classify_images(model, EncoderBlock, optimizer, batch, checkpoint, seed, side=96)
