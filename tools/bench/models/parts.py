"""What several models share: how they are trained, checkpointing of blocks, images, and token streams."""

from __future__ import annotations

import collections
import pathlib
import re
import sysconfig
from collections.abc import Iterable

import torch
from torch.utils.checkpoint import checkpoint

from . import Workload


def checkpoint_each(modules: Iterable[torch.nn.Module]) -> None:
    """Makes each module recompute its inside in backward instead of saving it."""
    for module in modules:
        inner = module.forward

        def forward(*args, _inner=inner, **kwargs):
            return checkpoint(_inner, *args, use_reentrant=False, **kwargs)

        module.forward = forward


def classify_images(
    model: torch.nn.Module,
    block: type[torch.nn.Module],
    optimizer: torch.optim.Optimizer,
    batch: int,
    checkpoint: bool,
    seed: int,
    side: int = 224,
) -> Workload:
    """Trains a network on `side` x `side` images; with `checkpoint` each `block` recomputes its inside."""
    if checkpoint:
        checkpoint_each(m for m in model.modules() if isinstance(m, block))

    def loss(data):
        images, labels = data
        return torch.nn.functional.cross_entropy(model(images), labels)

    return Workload(model, optimizer, ImageBatches(batch, seed, side), loss)


def train_transformer(model: torch.nn.Module, checkpoint: bool, learning_rate: float = 3e-4) -> torch.optim.AdamW:
    """Puts a model of transformers into training, and returns its optimizer."""
    if checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    return torch.optim.AdamW(model.parameters(), lr=learning_rate)


def language_model(
    model: torch.nn.Module, checkpoint: bool, words: WordBatches, learning_rate: float = 3e-4
) -> Workload:
    """Trains a model of transformers to predict the next word."""
    optimizer = train_transformer(model, checkpoint, learning_rate)
    return Workload(model, optimizer, words, lambda tokens: model(input_ids=tokens, labels=tokens).loss)


class ImageBatches:
    """Crops (3 x `side` x `side`, float) of the two photographs that come with scikit-learn, or of noise
    where that is missing. Ten classes: the photograph and the horizontal fifth the crop is from."""

    def __init__(self, batch: int, seed: int, side: int = 224):
        self.batch, self.seed, self.side = batch, seed, side
        try:
            from sklearn.datasets import load_sample_images

            photographs = [torch.from_numpy(image.copy()) for image in load_sample_images().images]
        except ImportError:
            noise = torch.Generator().manual_seed(seed)
            photographs = [torch.randint(0, 256, (427, 640, 3), dtype=torch.uint8, generator=noise) for _ in range(2)]
        self.photographs = [image.permute(2, 0, 1).contiguous() for image in photographs]

    def __call__(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        random = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        images = torch.empty(self.batch, 3, self.side, self.side)
        labels = torch.empty(self.batch, dtype=torch.long)
        for i in range(self.batch):
            which = int(torch.randint(len(self.photographs), (), generator=random))
            photograph = self.photographs[which]
            room_y, room_x = photograph.shape[1] - self.side, photograph.shape[2] - self.side
            y = int(torch.randint(room_y + 1, (), generator=random))
            x = int(torch.randint(room_x + 1, (), generator=random))
            images[i] = photograph[:, y : y + self.side, x : x + self.side]
            labels[i] = which * 5 + min(4, x * 5 // (room_x + 1))
        return images.div_(127.5).sub_(1.0), labels


class WordBatches:
    """Sequences of word ids from Python's own library sources, int64, `batch` x `length`. Ids below
    `kSpecial` are free for the model (padding, unknown, mask, start)."""

    kSpecial = 4
    kUnknown = 1

    def __init__(self, batch: int, length: int, vocabulary: int, seed: int):
        self.batch, self.length, self.seed = batch, length, seed
        words = re.findall(r"\w+|[^\w\s]|\n *", library_text(1_000_000))
        common = collections.Counter(words).most_common(vocabulary - self.kSpecial)
        ids = {word: i + self.kSpecial for i, (word, _) in enumerate(common)}
        self.stream = torch.tensor([ids.get(word, self.kUnknown) for word in words])

    def __call__(self, step: int) -> torch.Tensor:
        random = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        starts = torch.randint(len(self.stream) - self.length, (self.batch, 1), generator=random)
        return self.stream[starts + torch.arange(self.length)]

    def masked(self, step: int, mask: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The tokens of a step, which of them (15 %) are to be guessed, and the tokens with `mask` in their place."""
        tokens = self(step)
        random = torch.Generator().manual_seed(self.seed * 1_000_003 + step + 1)
        guessed = torch.rand(tokens.shape, generator=random) < 0.15
        return tokens, guessed, tokens.masked_fill(guessed, mask)


def library_text(limit: int) -> str:
    """The first `limit` characters of the standard library's top-level sources, in name order."""
    text = ""
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text += path.read_text(encoding="utf-8", errors="ignore")
        if len(text) >= limit:
            break
    return text[:limit]


class GraphOfCommunities:
    """A random undirected graph whose nodes prefer neighbours of their own class (7 directed edges a
    node on average); features are the class's mean plus noise. `x`, `edges` (2 x E), `labels`."""

    def __init__(self, nodes: int, features: int, classes: int, seed: int):
        random = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(classes, (nodes,), generator=random)
        order = torch.argsort(self.labels)
        pairs = nodes * 7 // 2
        source = torch.randint(nodes, (pairs,), generator=random)
        # In the order of classes, near nodes are of one class: two thirds of the edges stay near.
        near = (source + torch.randint(1, 50, (pairs,), generator=random)) % nodes
        far = torch.randint(nodes, (pairs,), generator=random)
        target = torch.where(torch.rand(pairs, generator=random) < 2 / 3, near, far)
        source, target = order[source], order[target]
        self.edges = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
        means = torch.randn(classes, features, generator=random)
        self.x = means[self.labels] * 0.3 + torch.randn(nodes, features, generator=random)
