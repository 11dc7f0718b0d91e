"""A frozen model with adapters whose embeddings are made to ask for a gradient, as enable_input_require_grads does for
checkpointing: the leaf that asks is no parameter."""

import torch
from torch import nn
from torch.nn import functional as F


class Adapted(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.requires_grad_(False)
        self.a, self.b = nn.Linear(width, 4, bias=False), nn.Linear(4, 4 * width, bias=False)

    def forward(self, x):
        hidden = self.norm(x)
        return x + self.down(F.gelu(self.up(hidden) + self.b(self.a(hidden))))


def make(rng):
    embedding, blocks = nn.Embedding(96, 64), nn.Sequential(*(Adapted(64) for _ in range(3)))
    head = nn.Linear(64, 96)
    embedding.requires_grad_(False)
    head.requires_grad_(False)
    embedding.register_forward_hook(lambda module, inputs, output: output.requires_grad_(True))
    model = nn.Sequential(embedding, blocks, head)

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = torch.randint(96, (192,), generator=generator)
        return F.cross_entropy(model(tokens), (7 * tokens + 3) % 96)

    return model, step
