"""Batch norm by var_mean over [0, 2, 3], as reference code and quantisation-aware training write it, with dead-quiet
channels."""

import torch


def batch_norm(x, weight, bias):
    variance, mean = torch.var_mean(x, [0, 2, 3], keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight[:, None, None] + bias[:, None, None]


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Conv2d(3, 16, 3, bias=False), torch.nn.Conv2d(16, 8, 3)])
    model.weight, model.bias = torch.nn.Parameter(torch.ones(16)), torch.nn.Parameter(torch.zeros(16))
    scale = torch.logspace(-3, 1, 16)[torch.randperm(16, generator=rng), None, None]

    def step(i):
        data = torch.Generator().manual_seed(i)
        hidden = (
            model[0](torch.randn(4, 3, 14, 14, generator=data)).contiguous(memory_format=torch.channels_last) * scale
        )
        return (model[1](torch.relu(batch_norm(hidden, model.weight, model.bias))) - 1).square().mean()

    return model, step
