"""The demo's character GPT (tools/demo/train_chargpt.py), so that bench and demo speak of one model."""

import pathlib
import sys

import torch

from . import Workload
from .parts import checkpoint_each

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "demo"))
from train_chargpt import CharGPT, TextBatches  # noqa: E402


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    batches = TextBatches(batch, length=128, seed=seed)
    model = CharGPT(batches.vocabulary, length=128, width=128, layers=6, heads=4)
    if checkpoint:
        checkpoint_each(model.blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return Workload(model, optimizer, batches, lambda data: model.loss(*data))
