"""A projection is normalised by row, and a few rows of its input are 10, 100 or 1,000 times smaller than the others, or zeros: the
gradient of such a row grows as 1 / row. At most widths a group of the codec has parts of several rows."""

import torch
from torch.nn import functional as F

WIDTHS = (24, 64, 128, 192, 300, 320, 768, 1152)
SCALES = {"1": 1.0, "tenth": 0.1, "hundredth": 0.01, "thousandth": 1e-3, "zero": 0.0}
BAR = 0.2
STEPS = 2
SMALL = 5  # rows


def make(rng):
    cases = {(width, name): scale for width in WIDTHS for name, scale in SCALES.items()}
    model = torch.nn.ModuleDict({f"{w} {name}": torch.nn.Linear(w, 32, bias=False) for w, name in cases})
    gains = {width: torch.ones(width, requires_grad=True) for width in WIDTHS}

    def step(i):
        loss, data = 0, torch.Generator().manual_seed(i)
        for (width, name), scale in cases.items():
            count = 2048 if width == 64 else 256  # a search for rows of zeros that takes samples misses five of 2,048
            rows = torch.ones(count, 1)
            rows[torch.randperm(count, generator=data)[:SMALL]] = scale
            x = torch.randn(count, width, generator=data) * rows * gains[width]
            loss = loss + (F.normalize(model[f"{width} {name}"](x), dim=-1) * torch.randn(count, 32, generator=data)).sum()
        return loss

    return model, step
