"""The demo's character GPT with its attention written out (scores, mask, softmax) instead of fused."""

import torch

from . import Workload
from .chargpt import CharGPT, TextBatches
from .parts import checkpoint_each


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    batches = TextBatches(batch, length=128, seed=seed)
    model = CharGPT(batches.vocabulary, length=128, width=128, layers=6, heads=4, fused=False)
    if checkpoint:
        checkpoint_each(model.blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return Workload(model, optimizer, batches, lambda data: model.loss(*data))
