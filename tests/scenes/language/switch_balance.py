"""Switch routing: the probability of the one expert chosen scales its result, and the balance and z losses read the router's
probabilities after they have been used."""

import torch
from torch import nn
from torch.nn import functional as F


class Switch(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * (2 * width) ** -0.5)

    def forward(self, x):
        logits = self.router(x)
        probability = F.softmax(logits, dim=-1)
        gate, chosen = probability.max(dim=-1)
        dispatch = F.one_hot(chosen, self.router.out_features).float()
        inputs = torch.einsum("te,tw->etw", dispatch, x)
        hidden = torch.bmm(F.relu(torch.bmm(inputs, self.up)), self.down)
        result = torch.einsum("te,etw->tw", dispatch * gate[:, None], hidden)
        balance = self.router.out_features * (dispatch.mean(0) * probability.mean(0)).sum()
        return result, balance + 0.1 * torch.logsumexp(logits, dim=-1).square().mean()


def make(rng):
    model = nn.ModuleList([nn.Embedding(96, 64), nn.LayerNorm(64), Switch(64, 6), nn.Linear(64, 96)])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = torch.randint(96, (192,), generator=generator)
        x = model[0](tokens)
        result, second = model[2](model[1](x))
        return F.cross_entropy(model[3](x + result), (7 * tokens + 3) % 96) + 0.1 * second

    return model, step
