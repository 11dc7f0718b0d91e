"""A diffusion U-Net with GroupNorm and SiLU, widths 32 to 96, that predicts the noise in 64 x 64 images; AdamW."""

import math

import torch
from torch import nn

from . import Workload
from .parts import ImageBatches, checkpoint_each

WIDTHS, TIMES, SIDE, STEPS = (32, 64, 96), 128, 64, 1000


class Block(nn.Module):
    """Two convolutions beside a shortcut; the time enters between them."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.before = nn.Sequential(nn.GroupNorm(8, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.time = nn.Linear(TIMES, outputs)
        self.after = nn.Sequential(
            nn.GroupNorm(8, outputs), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(outputs, outputs, 3, padding=1)
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        return self.shortcut(x) + self.after(self.before(x) + self.time(time)[:, :, None, None])


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(TIMES, TIMES), nn.SiLU(), nn.Linear(TIMES, TIMES), nn.SiLU())
        self.first = nn.Conv2d(3, WIDTHS[0], 3, padding=1)
        self.down = nn.ModuleList(Block(inputs, outputs) for inputs, outputs in zip(WIDTHS[:1] + WIDTHS, WIDTHS))
        self.shrink = nn.ModuleList(nn.Conv2d(width, width, 3, stride=2, padding=1) for width in WIDTHS[:-1])
        self.middle = Block(WIDTHS[-1], WIDTHS[-1])
        above = WIDTHS[-2::-1] + WIDTHS[:1]
        self.up = nn.ModuleList(Block(2 * inputs, outputs) for inputs, outputs in zip(WIDTHS[::-1], above))
        self.grow = nn.Upsample(scale_factor=2, mode="nearest")
        self.last = nn.Sequential(nn.GroupNorm(8, WIDTHS[0]), nn.SiLU(), nn.Conv2d(WIDTHS[0], 3, 3, padding=1))

    def forward(self, x, steps):
        frequencies = torch.exp(torch.arange(TIMES // 2) * (-math.log(10_000) / (TIMES // 2)))
        angles = steps[:, None] * frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        x = self.first(x)
        passed = []
        for i, block in enumerate(self.down):
            x = block(x, time)
            passed.append(x)
            if i < len(self.shrink):
                x = self.shrink[i](x)
        x = self.middle(x, time)
        for i, block in enumerate(self.up):
            x = block(torch.cat([x, passed.pop()], 1), time)
            if passed:
                x = self.grow(x)
        return self.last(x)


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = UNet()
    if checkpoint:
        checkpoint_each(m for m in model.modules() if isinstance(m, Block))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    images = ImageBatches(batch, seed, side=SIDE)
    kept = torch.cos(torch.linspace(0.01, 0.99, STEPS) * math.pi / 2) ** 2

    def make_batch(step):
        random = torch.Generator().manual_seed(seed * 1_000_003 + step)
        clean = images(step)[0]
        times = torch.randint(STEPS, (batch,), generator=random)
        noise = torch.randn(clean.shape, generator=random)
        share = kept[times][:, None, None, None]
        return share.sqrt() * clean + (1 - share).sqrt() * noise, times, noise

    def loss(data):
        noisy, times, noise = data
        return nn.functional.mse_loss(model(noisy, times), noise)

    return Workload(model, optimizer, make_batch, loss)
