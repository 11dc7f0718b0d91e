"""An eager sigmoid whose loss -log(1 - p + 1e-7) is compiled by inductor."""

import torch
import torch._inductor.compile_fx  # once for all legs

SLOW = True
torch._inductor.config.compile_threads = 1
torch._inductor.config.cpp.vec_isa_ok = True  # else each leg tries out instruction sets, for ten seconds


@torch.compile
def loss_of(p):
    return -torch.log(1 - p + 1e-7).mean()


def forward(model, x):
    return loss_of(torch.sigmoid(5 * model(x) + 3))


def make(rng):
    model = torch.nn.Linear(32, 128)

    def step(i):
        return forward(model, torch.randn(64, 32, generator=torch.Generator().manual_seed(i)))

    return model, step
