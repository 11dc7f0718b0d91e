"""Models small enough that thousands of backward passes over them take minutes.

As the models of the other benchmarks, but narrower: what is measured here does not depend on the size of a tensor.
`build(name, quick)` gives a models.Workload whose batches are numbered; equal numbers give equal batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from models import Workload, chargpt
from models.parts import GraphOfCommunities, WordBatches

NAMES = ("vgg11_bn", "gpt", "gpt_eager", "bert", "gcn")


@dataclass(frozen=True)
class Training:
    """`steps` at least, then on until the mean loss of the last 20 is below `loss`, but not for ever."""

    steps: int
    loss: float = float("inf")


def training(name: str, quick: bool) -> Training:
    if quick:
        return Training(40 if name == "vgg11_bn" else 60)
    return Training(300, 1.2 if name == "vgg11_bn" else float("inf"))


def build(name: str, quick: bool) -> Workload:
    torch.manual_seed(0)
    return _BUILDERS[name](quick)


# --- images -------------------------------------------------------------------------------------------


class Vgg11(nn.Module):
    """VGG-11 with batch normalisation (Simonyan and Zisserman 2015, A), `scale` times as wide."""

    def __init__(self, scale: float, side: int, classes: int = 10, hidden: int = 512) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
            if width == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            width = int(width * scale)
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(channels * (side // 32) ** 2, hidden), nn.ReLU(True), nn.Dropout(),
            nn.Linear(hidden, hidden), nn.ReLU(True), nn.Dropout(), nn.Linear(hidden, classes),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images).flatten(1))


class NoisyPatterns:
    """`batch` images of `side` x `side`: one of ten smooth patterns each, under noise of three times their size; every
    fifth has a class drawn by chance, so that the loss does not go to zero."""

    def __init__(self, batch: int, side: int) -> None:
        self.batch, self.side = batch, side
        self.patterns = torch.randn(10, 3, 8, 8, generator=torch.Generator().manual_seed(1))

    def __call__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        random = torch.Generator().manual_seed(number)
        classes = torch.randint(10, (self.batch,), generator=random)
        images = F.interpolate(self.patterns[classes], size=self.side, mode="bilinear")
        images = images + 3 * torch.randn(images.shape, generator=random)
        by_chance = torch.rand(self.batch, generator=random) < 0.2
        return images, torch.where(by_chance, torch.randint(10, (self.batch,), generator=random), classes)


def _vgg11_bn(quick: bool) -> Workload:
    side = 32 if quick else 64
    model = Vgg11(0.25 if quick else 0.5, side)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return Workload(model, optimizer, NoisyPatterns(16, side), lambda data: F.cross_entropy(model(data[0]), data[1]))


# --- text ---------------------------------------------------------------------------------------------


def _gpt(quick: bool, fused: bool = True) -> Workload:
    """The demo's character GPT: 6 layers of width 96 (quick: 3 of width 48), 16 x 64 characters."""
    batches = chargpt.TextBatches(16, length=64, seed=0, limit=1_000_000)
    width, layers = (48, 3) if quick else (96, 6)
    model = chargpt.CharGPT(batches.vocabulary, length=64, width=width, layers=layers, heads=4, fused=fused)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return Workload(model, optimizer, batches, lambda data: model.loss(*data))


def _bert(quick: bool) -> Workload:
    """As models/bert.py, with 3 layers of width 128 and 16 x 64 words."""
    from transformers import AutoModelForMaskedLM, BertConfig

    vocabulary, length, mask = 512, 64, 2
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=128, num_hidden_layers=1 if quick else 3, num_attention_heads=4,
        intermediate_size=512, max_position_embeddings=length,
    )  # fmt: skip
    model = AutoModelForMaskedLM.from_config(config, attn_implementation="eager")
    model.train()
    words = WordBatches(16, length, vocabulary, seed=0)

    def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, guessed, masked = words.masked(number, mask)
        return masked, tokens.masked_fill(~guessed, -100)

    def loss(data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        tokens, labels = data
        return model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=labels).loss

    return Workload(model, torch.optim.AdamW(model.parameters(), lr=1e-3), batch, loss)


# --- graphs -------------------------------------------------------------------------------------------


def _gcn(quick: bool) -> Workload:
    """As models/gcn.py, with width 64 and 1,500 nodes. Every batch is the whole graph: only dropout differs."""
    from models import gcn

    gcn.WIDTH, gcn.FEATURES, gcn.CLASSES = 64, 32, 10
    graph = GraphOfCommunities(500 if quick else 1500, gcn.FEATURES, gcn.CLASSES, seed=0)
    model = gcn.GCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return Workload(
        model, optimizer, lambda number: None, lambda _: F.cross_entropy(model(graph.x, graph.edges), graph.labels)
    )


_BUILDERS = {
    "vgg11_bn": _vgg11_bn,
    "gpt": _gpt,
    "gpt_eager": lambda quick: _gpt(quick, fused=False),
    "bert": _bert,
    "gcn": _gcn,
}
