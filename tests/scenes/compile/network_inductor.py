"""A whole network compiled by inductor, its loss and a regulariser with a logarithm outside."""

import torch
import torch._inductor.compile_fx  # once for all legs
from torch import nn

SLOW = True
torch._inductor.config.compile_threads = 1
torch._inductor.config.cpp.vec_isa_ok = True  # else each leg tries out instruction sets, for ten seconds


def make(rng):
    model = nn.Sequential(nn.Linear(32, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 64), nn.Sigmoid())
    compiled = torch.compile(model)

    def step(i):
        data = torch.Generator().manual_seed(i)
        p = compiled(torch.randn(96, 32, generator=data))
        target = (torch.rand(96, 64, generator=data) < 0.2).float()
        return nn.functional.binary_cross_entropy(p, target) - 0.1 * torch.log(p + 1e-6).mean()

    return model, step
