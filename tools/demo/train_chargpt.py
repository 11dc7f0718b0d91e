#!/usr/bin/env python3
"""Trains a small GPT on characters, with the sources of Python's own standard library as the text.

A plain PyTorch script: it knows nothing of Pleat. On its own, and then with its memory compressed:

    python tools/demo/train_chargpt.py --steps 150
    build/bin/pleat run -- python tools/demo/train_chargpt.py --steps 150
"""

import argparse
import json
import math
import pathlib
import sys
import sysconfig
import time

import torch
from torch import nn
from torch.nn import functional as F


class TextBatches:
    """Random pieces of the text as (characters, next characters), int64, batch x length."""

    def __init__(self, batch, length, seed, limit=2_000_000):
        text = ""
        for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
            text += path.read_text(encoding="ascii", errors="ignore")
            if len(text) >= limit:
                break
        text = text[:limit]
        self.alphabet = sorted(set(text))
        number = {character: i for i, character in enumerate(self.alphabet)}
        self.text = torch.tensor([number[character] for character in text], dtype=torch.uint8)
        self.batch, self.length, self.seed = batch, length, seed

    @property
    def vocabulary(self):
        return len(self.alphabet)

    def __call__(self, step):
        random = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        starts = torch.randint(len(self.text) - self.length, (self.batch, 1), generator=random)
        pieces = self.text[starts + torch.arange(self.length + 1)].long()
        return pieces[:, :-1], pieces[:, 1:]


class Attention(nn.Module):
    def __init__(self, width, heads, dropout, fused=True):
        super().__init__()
        self.heads = heads
        self.fused = fused
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
            future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        return self.dropout(self.project(mixed.transpose(1, 2).reshape(batch, length, width)))


class Block(nn.Module):
    def __init__(self, width, heads, dropout, fused=True):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout, fused)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class CharGPT(nn.Module):
    def __init__(self, vocabulary, length, width, layers, heads, dropout=0.0, fused=True):
        super().__init__()
        self.characters = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout, fused) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, characters):
        x = self.characters(characters) + self.positions(torch.arange(characters.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def loss(self, characters, following):
        return F.cross_entropy(self(characters).flatten(0, 1), following.flatten())


def resident_bytes():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Trains a small character GPT on the sources of Python's standard library.",
        epilog="example: python train_chargpt.py --steps 300 --layers 6 --width 128",
    )
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=math.inf, metavar="S", help="begin no step later than this (default: no limit)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=128, help="characters per sequence")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--print-every", type=int, default=10, metavar="N")
    parser.add_argument("--log-jsonl", metavar="FILE", help="one line per step: step, loss, time, rss")
    arguments = parser.parse_args()
    for name in ("steps", "batch", "length", "layers", "width", "heads", "print_every"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if not arguments.seconds > 0:
        parser.error("--seconds must be above 0")
    if arguments.width % arguments.heads:
        parser.error("--width must be a multiple of --heads")
    return arguments


def main():
    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)
    batches = TextBatches(arguments.batch, arguments.length, arguments.seed)
    model = CharGPT(batches.vocabulary, arguments.length, arguments.width, arguments.layers, arguments.heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters / 1e6:.2f} M parameters, {len(batches.text) / 1e6:.1f} M characters", flush=True)

    log = open(arguments.log_jsonl, "w") if arguments.log_jsonl else None
    if log:
        print(json.dumps({"step": 0, "time": time.time(), "rss": resident_bytes()}), file=log, flush=True)
    end = time.perf_counter() + arguments.seconds
    for step in range(1, arguments.steps + 1):
        start = time.perf_counter()
        loss = model.loss(*batches(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds = time.perf_counter() - start
        last = step == arguments.steps or time.perf_counter() >= end
        if step == 1 or step % arguments.print_every == 0 or last:
            print(f"step {step:5d}  loss {loss.item():.4f}  {seconds * 1000:6.0f} ms", flush=True)
        if log:
            entry = {"step": step, "loss": loss.item(), "time": time.time(), "seconds": seconds, "rss": resident_bytes()}
            print(json.dumps(entry), file=log, flush=True)
        if last:
            break


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
