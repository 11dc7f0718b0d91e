"""Selective activation checkpointing: products are kept, all else is recomputed, in an MLP with a gate and a
softmax."""

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

KEPT = [torch.ops.aten.addmm.default, torch.ops.aten.mm.default]


def policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def make(rng):
    model = nn.ModuleList([nn.Linear(48, 128), nn.Linear(48, 128), nn.Linear(128, 48), nn.Linear(48, 10)])

    def block(x):
        return x + model[2](nn.functional.silu(model[0](x)) * torch.softmax(model[1](x), -1))

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(96, 48, generator=data)
        x = checkpoint(block, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))
        return nn.functional.cross_entropy(model[3](x), torch.randint(10, (96,), generator=data))

    return model, step
