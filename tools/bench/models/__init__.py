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
}


@dataclass
class Workload:
    """What a training loop needs: `loss(batch(step)).backward()`, then a step of `optimizer`."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batch: Callable[[int], Any]
    loss: Callable[[Any], torch.Tensor]


def build(name: str, batch: int | None = None, checkpoint: bool = False, seed: int = 0) -> Workload:
    """Builds the workload `name`; equal seeds give equal weights and equal data."""
    import torch

    entry = MODELS[name]
    torch.manual_seed(seed)
    module = importlib.import_module(f"{__name__}.{name}")
    return module.build(batch or entry.batch, checkpoint, seed)
