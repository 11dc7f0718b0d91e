"""Small trainings on real data, each a few CPU seconds: scikit-learn's digits, a graph of them, Python's own sources.

Plain PyTorch that knows nothing of Pleat. `build(name, seed)` gives a Task; equal seeds give equal weights, equal
batches and, as torch's random generator is seeded last, equal dropout. What is trained on and what is tested on are
the same for all seeds.
"""

from __future__ import annotations

import math
import pathlib
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from models.chargpt import CharGPT


@dataclass
class Task:
    """`loss(number)` is that of a numbered batch, `test()` gives (accuracy in percent, loss) of the held-out half."""

    model: nn.Module
    learning_rate: float
    steps: int
    loss: Callable[[int], torch.Tensor]
    test: Callable[[], tuple[float, float]]
    facts: dict[str, Any]  # sizes, and what a guess would have


def build(name: str, seed: int) -> Task:
    torch.manual_seed(seed)
    task = _BUILDERS[name](seed)
    torch.manual_seed(seed + 1_000_003)
    return task


def chosen(count: int, of: int, seed: int, step: int) -> torch.Tensor:
    """The members of a batch."""
    return torch.randint(of, (count,), generator=torch.Generator().manual_seed(seed * 1_000_003 + step))


def accuracy_and_loss(logits: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    right = (logits.argmax(-1) == labels).double().mean().item()
    return 100 * right, F.cross_entropy(logits.double(), labels).item()


# --- digits -------------------------------------------------------------------------------------------


class Digits:
    """The 1,797 images of 8 x 8 pixels that come with scikit-learn; which half trains was drawn once."""

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        self.pixels = torch.tensor(digits.data, dtype=torch.float32) / 8 - 1
        self.labels = torch.tensor(digits.target, dtype=torch.long)
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(0))
        half = len(order) // 2
        self.training, self.testing = order[:half], order[half:]


def _images(model: nn.Module, shape: tuple[int, ...], seed: int, batch: int, steps: int, rate: float) -> Task:
    data = Digits()
    pixels = data.pixels.view(-1, *shape)

    def loss(step: int) -> torch.Tensor:
        members = data.training[chosen(batch, len(data.training), seed, step)]
        return F.cross_entropy(model(pixels[members]), data.labels[members])

    def test() -> tuple[float, float]:
        return accuracy_and_loss(model(pixels[data.testing]), data.labels[data.testing])

    facts = {"training": len(data.training), "testing": len(data.testing), "batch": batch}
    return Task(model, rate, steps, loss, test, facts)


def _digits_cnn(seed: int) -> Task:
    def layer(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())

    model = nn.Sequential(
        layer(1, 24), layer(24, 24), nn.MaxPool2d(2), layer(24, 48), nn.Dropout(0.25), nn.Flatten(),
        nn.Linear(48 * 16, 64), nn.GELU(), nn.Linear(64, 10),
    )  # fmt: skip
    return _images(model, (1, 8, 8), seed, batch=64, steps=300, rate=2e-3)


def _digits_mlp(seed: int) -> Task:
    model = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(256, 10),
    )  # fmt: skip
    return _images(model, (64,), seed, batch=128, steps=600, rate=2e-3)


# --- text ---------------------------------------------------------------------------------------------


class Sources:
    """The printable ASCII of the Python library's top-level sources; every eighth file is held out."""

    CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127))

    def __init__(self, limit: int = 2_000_000) -> None:
        number = {ord(character): i for i, character in enumerate(self.CHARACTERS)}
        texts: dict[bool, list[int]] = {False: [], True: []}
        for i, path in enumerate(sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))):
            texts[i % 8 == 7] += [number[byte] for byte in path.read_bytes() if byte in number]
            if len(texts[False]) >= limit:
                break
        self.training, self.testing = (torch.tensor(texts[held_out], dtype=torch.uint8) for held_out in (False, True))

    def unigram_entropy(self) -> float:
        """Of the held-out text, in nats: what the best guess without a look at the text before would have."""
        shares = torch.bincount(self.testing.long()).double() / len(self.testing)
        return -(shares * shares.clamp_min(1e-300).log()).sum().item()


def _char_gpt(seed: int) -> Task:
    text, length, batch = Sources(), 64, 16
    model = CharGPT(len(text.CHARACTERS), length, width=64, layers=2, heads=4, dropout=0.05)
    places = torch.arange(length + 1)

    def loss(step: int) -> torch.Tensor:
        starts = chosen(batch, len(text.training) - length, seed, step)
        pieces = text.training[starts[:, None] + places].long()
        return model.loss(pieces[:, :-1], pieces[:, 1:])

    def test() -> tuple[float, float]:
        starts = torch.linspace(0, len(text.testing) - length - 1, 512).long()
        pieces = text.testing[starts[:, None] + places].long()
        return accuracy_and_loss(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())

    facts = {
        "training": len(text.training), "testing": len(text.testing), "batch": batch, "length": length,
        "unigram_entropy": text.unigram_entropy(),
    }  # fmt: skip
    return Task(model, 5e-3, 350, loss, test, facts)


# --- a graph ------------------------------------------------------------------------------------------


def nearest_neighbours(points: torch.Tensor, count: int) -> torch.Tensor:
    """Edges in both directions between each point and its `count` nearest ones, 2 x edges; none twice."""
    near = torch.cdist(points, points).fill_diagonal_(math.inf).topk(count, largest=False).indices
    linked = torch.zeros(len(points), len(points), dtype=torch.bool).scatter_(1, near, True)
    return (linked | linked.T).nonzero().T.contiguous()


def _nodes(model: nn.Module, steps: int, rate: float) -> Task:
    data = Digits()
    edges = nearest_neighbours(data.pixels, 15)

    def loss(_: int) -> torch.Tensor:
        return F.cross_entropy(model(data.pixels, edges)[data.training], data.labels[data.training])

    def test() -> tuple[float, float]:
        return accuracy_and_loss(model(data.pixels, edges)[data.testing], data.labels[data.testing])

    facts = {"training": len(data.training), "testing": len(data.testing), "edges": edges.shape[1]}
    return Task(model, rate, steps, loss, test, facts)


class Graph(nn.Module):
    """Layers on nodes and edges, each with what comes after it, then one on nodes alone."""

    def __init__(self, layers: list[tuple[nn.Module, nn.Module]], head: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer for layer, _ in layers)
        self.after = nn.ModuleList(after for _, after in layers)
        self.head = head

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for layer, after in zip(self.layers, self.after):
            x = after(layer(x, edges))
        return self.head(x)


def _gcn(seed: int) -> Task:
    from torch_geometric.nn import GCNConv

    width = 160
    layers = [(GCNConv(64, width, cached=True), _after_gcn(width)), (GCNConv(width, width, cached=True), _after_gcn(width))]
    return _nodes(Graph(layers, nn.Linear(width, 10)), steps=80, rate=1e-2)


def _after_gcn(width: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.5))


def _gat(seed: int) -> Task:
    from torch_geometric.nn import GATConv

    after = nn.Sequential(nn.ELU(), nn.Dropout(0.3))
    layers = [(GATConv(64, 16, heads=2, dropout=0.1), after), (GATConv(32, 16, heads=2, dropout=0.1), after)]
    return _nodes(Graph(layers, nn.Linear(32, 10)), steps=100, rate=1e-2)


_BUILDERS = {
    "digits_cnn": _digits_cnn,
    "digits_mlp": _digits_mlp,
    "char_gpt": _char_gpt,
    "gcn": _gcn,
    "gat": _gat,
}
