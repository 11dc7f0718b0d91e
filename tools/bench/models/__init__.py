"""The models of the benchmark tables: name, usual batch, and how to build one.

Every module `models/NAME.py` has one function, `build(batch, checkpoint, seed) -> Workload`. Weights are
random, built from a configuration; data is synthetic or comes with the installed packages. This file
imports no torch, so that the programs which only start trainings stay light.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue. `batch` counts `unit`s per step."""

    batch: int
    unit: str
    about: str


MODELS: dict[str, Entry] = {
    "resnet50": Entry(16, "images", "torchvision ResNet-50, 224 x 224, SGD with momentum"),
    "swin_t": Entry(8, "images", "torchvision Swin-T, 224 x 224, AdamW"),
    "bert": Entry(32, "sequences", "transformers BERT, 4 layers, width 512, 128 tokens, eager attention"),
    "gpt2": Entry(8, "sequences", "transformers GPT-2, 4 layers, width 512, 256 tokens, eager attention"),
    "gcn": Entry(50, "k nodes", "torch_geometric GCN, 6 layers, width 256, 7 edges a node"),
    "gat": Entry(15, "k nodes", "torch_geometric GAT, 3 layers, 4 heads of 32, 7 edges a node"),
    "lstm": Entry(32, "sequences", "LSTM language model, 2 layers, width 512, 64 tokens"),
    "chargpt": Entry(64, "sequences", "character GPT of the demo, 6 layers, width 128, 128 characters"),
    "chargpt_eager": Entry(64, "sequences", "the same with its attention written out"),
    "llama": Entry(8, "sequences", "transformers Llama, 4 layers, width 256, 128 tokens, bf16 autocast"),
    "densenet": Entry(16, "images", "torchvision DenseNet, growth 16, 16 layers, 96 x 96"),
    "efficientnet": Entry(8, "images", "torchvision EfficientNet-B0, 96 x 96"),
    "convnext": Entry(16, "images", "torchvision ConvNeXt, widths 48 to 192, 8 blocks, 96 x 96"),
    "vit": Entry(16, "images", "torchvision ViT, 4 layers, width 192, 144 patches"),
    "unet": Entry(8, "images", "diffusion U-Net with GroupNorm, widths 32 to 96, 64 x 64"),
    "t5": Entry(16, "sequences", "transformers T5, 3 + 3 layers, width 256, 128 tokens"),
    "moe": Entry(8, "sequences", "transformers Mixtral, 3 layers, width 256, 2 of 4 experts, 128 tokens"),
    "gpt2_50257": Entry(4, "sequences", "transformers GPT-2, 2 layers, width 128, 128 tokens, vocabulary 50,257"),
    "segmentation": Entry(8, "images", "torchvision LR-ASPP, 21 classes, 160 x 160, full resolution"),
    "digits": Entry(256, "images", "small CNN on scikit-learn's digits, 8 x 8"),
}


@dataclass
class Workload:
    """What a training loop needs: `loss(batch(step)).backward()`, then a step of `optimizer`."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batch: Callable[[int], Any]
    loss: Callable[[Any], torch.Tensor]


def build(name: str, batch: int | None = None, checkpoint: bool = False, seed: int = 0, **sizes) -> Workload:
    """Builds the workload `name`; equal seeds give equal weights and equal data. `sizes`: of modules that take them."""
    import torch

    entry = MODELS[name]
    torch.manual_seed(seed)
    module = importlib.import_module(f"{__name__}.{name}")
    return module.build(batch or entry.batch, checkpoint, seed, **sizes)
