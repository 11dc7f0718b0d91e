"""A block of GPT-2 with dropout, fused attention and GELU: the rule must allow noise here."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.first_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + F.dropout(
            self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)), 0.1
        )
        return x + F.dropout(self.down(F.gelu(self.up(self.second_norm(x)))), 0.1)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(96, 64), nn.Embedding(32, 64)
        self.blocks = nn.Sequential(Block(64, 4), Block(64, 4))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 96, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places.weight)))


def make(rng):
    model = Gpt()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = torch.randint(96, (8, 1), generator=generator) + torch.arange(33) * 5
        tokens = (tokens + torch.randint(3, (8, 33), generator=generator)) % 96
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return model, step
