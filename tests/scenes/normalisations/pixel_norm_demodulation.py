"""StyleGAN: pixel norm of latents, then convolution weights scaled by a style and demodulated by a root of their own
sum."""

import torch
from torch.nn import functional as F


def modulated(x, weight, style):
    n, channels = x.shape[:2]
    w = weight[None] * style[:, None, :, None, None]
    w = w * torch.rsqrt(w.square().sum([2, 3, 4]) + 1e-8)[:, :, None, None, None]
    return F.conv2d(x.reshape(1, n * channels, *x.shape[2:]), w.flatten(0, 1), padding=1, groups=n).reshape(
        n, -1, *x.shape[2:]
    )


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(32, 64), torch.nn.Linear(64, 16), torch.nn.Conv2d(12, 3, 1)])
    model.weight = torch.nn.Parameter(torch.randn(12, 16, 3, 3, generator=rng))
    model.constant = torch.nn.Parameter(torch.randn(16, 12, 12, generator=rng))

    def step(i):
        data = torch.Generator().manual_seed(i)
        z = torch.randn(4, 32, generator=data)
        z = z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-8)
        style = model[1](F.leaky_relu(model[0](z), 0.2)) + 1
        image = model[2](F.leaky_relu(modulated(model.constant.expand(4, -1, -1, -1), model.weight, style), 0.2))
        return (image - torch.randn(4, 3, 12, 12, generator=data)).square().mean()

    return model, step
