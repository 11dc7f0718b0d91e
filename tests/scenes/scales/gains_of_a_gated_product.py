"""The input of a Llama's down projection is a product of two activations, whose tails are long, and its channels have gains of
their own, as after training."""

import torch
from torch import nn
from torch.nn import functional as F

BAR, COLUMNS = 0.25, True


class Gated(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def make(rng):
    model = nn.ModuleList([nn.Embedding(100, 128), nn.LayerNorm(128), Gated(128, 512), nn.LayerNorm(128), nn.Linear(128, 100)])
    gains = torch.exp(0.6 * torch.randn(512, 1, generator=rng))
    with torch.no_grad():
        nn.init.normal_(model[2].gate.weight, std=128**-0.5)
        model[2].up.weight *= gains
        model[2].down.weight /= gains.T

    def step(i):
        tokens = torch.randint(100, (128,), generator=torch.Generator().manual_seed(i))
        x = model[0](tokens)
        return F.cross_entropy(model[4](model[3](x + model[2](model[1](x)))), tokens.roll(-1))

    return model, step
