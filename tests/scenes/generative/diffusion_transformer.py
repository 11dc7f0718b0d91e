"""A block of a diffusion transformer: a layer norm without a gain, then a scale, a shift and a gate that are broadcast
over the tokens, so that their gradients are sums over rows."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first_norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.second_norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def attention(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def forward(self, x, condition):
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = self.modulation(condition)[:, None].chunk(6, dim=-1)
        x = x + gate * self.attention(self.first_norm(x) * (1 + scale) + shift)
        hidden = self.second_norm(x) * (1 + scale_mlp) + shift_mlp
        return x + gate_mlp * self.down(F.gelu(self.up(hidden), approximate="tanh"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.condition = nn.Sequential(nn.Linear(1, 64), nn.SiLU(), nn.Linear(64, 64))
        self.first, self.block, self.last = nn.Linear(12, 64), Block(64, 4), nn.Linear(64, 12)

    def forward(self, x, t):
        return self.last(self.block(self.first(x), self.condition(t)))


def make(rng):
    model = Model()

    def step(i):  # rectified flow: the target is the difference of noise and data
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(8, 1, 12, generator=generator) + 0.3 * torch.randn(8, 32, 12, generator=generator)
        noise, t = torch.randn(x.shape, generator=generator), torch.rand(8, 1, generator=generator)
        mixed = (1 - t[:, :, None]) * x + t[:, :, None] * noise
        return F.mse_loss(model(mixed, t), noise - x)

    return model, step
