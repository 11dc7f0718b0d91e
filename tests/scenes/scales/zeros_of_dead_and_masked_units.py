"""A third of the units is masked, and others are dead: the weights that read them have a gradient of exactly zero."""

import torch
from torch import nn
from torch.nn import functional as F

BAR, VALUES = 0.2, True
LEGS = {"2": "bits:2,min_bytes:0"}
DEAD, MASKED = slice(0, 160, 7), slice(0, 160, 3)


def make(rng):
    model = nn.ModuleList([nn.Linear(24, 160), nn.Linear(160, 160), nn.Linear(160, 160), nn.Linear(160, 10)])
    mask = torch.ones(160)
    mask[MASKED] = 0
    with torch.no_grad():
        model[0].bias[DEAD] = -100.0

    def forward(x):
        x = torch.tanh(model[1](F.relu(model[0](x)))) * mask
        x = F.elu(model[2](x)).masked_fill(mask == 0, 0.0)
        return model[3](x)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        label = torch.randint(10, (128,), generator=generator)
        x = label[:, None] / 5 - 1 + torch.randn(128, 24, generator=generator)
        F.cross_entropy(forward(x), label).backward()
        dead = [model[0].weight.grad[DEAD], model[0].bias.grad[DEAD], model[1].weight.grad[:, DEAD]]
        return None, [*dead, model[1].weight.grad[MASKED], model[2].weight.grad[:, MASKED], model[3].weight.grad[:, MASKED]]

    return model, step
