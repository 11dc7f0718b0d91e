"""ConvNeXt's channels-first layer norm: mean and mean square over dimension 1, pixels of unlike contrast."""

import torch


def layer_norm(x, weight, bias, eps=1e-6):
    u = x.mean(1, keepdim=True)
    s = (x - u).pow(2).mean(1, keepdim=True)
    x = (x - u) / torch.sqrt(s + eps)
    return weight[:, None, None] * x + bias[:, None, None]


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Conv2d(3, 32, 2, stride=2), torch.nn.Conv2d(32, 16, 2, stride=2)])
    model.weight, model.bias = torch.nn.Parameter(torch.ones(32)), torch.nn.Parameter(torch.zeros(32))

    def step(i):
        data = torch.Generator().manual_seed(i)
        contrast = torch.rand(4, 1, 32, 32, generator=data).pow(6)  # dark pixels next to bright ones
        hidden = model[0](torch.randn(4, 3, 32, 32, generator=data) * contrast)
        return (model[1](layer_norm(hidden, model.weight, model.bias)) - 1).square().mean()

    return model, step
