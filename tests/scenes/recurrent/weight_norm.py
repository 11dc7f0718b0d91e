"""A recurrent layer whose weight is g v / |v|, computed once and read at each of 40 steps."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.parametrize import cached


def make(rng):
    model = nn.ModuleDict({"words": nn.Embedding(96, 64), "hidden": weight_norm(nn.Linear(64, 64)), "head": weight_norm(nn.Linear(64, 96))})

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = (torch.randint(96, (16, 1), generator=generator) + torch.arange(41) * 5) % 96
        x, h, states = model["words"](tokens[:, :-1]), torch.zeros(16, 64), []
        with cached():
            for t in range(40):
                h = torch.tanh(x[:, t] + model["hidden"](h))
                states.append(h)
            return F.cross_entropy(model["head"](torch.stack(states, dim=1)).flatten(0, 1), tokens[:, 1:].flatten())

    return model, step
