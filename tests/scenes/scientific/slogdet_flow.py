"""An invertible 1 x 1 convolution's log-determinant (Glow) and an affine coupling with exp of a tanh."""

import torch


def make(rng):
    net = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.ReLU(), torch.nn.Linear(64, 48))
    model = torch.nn.ModuleList([net])
    model.mix = torch.nn.Parameter(torch.linalg.qr(torch.randn(48, 48, generator=rng)).Q)

    def step(i):
        x = torch.randn(128, 48, generator=torch.Generator().manual_seed(i))
        x = x @ model.mix
        still, moved = x.chunk(2, -1)
        log_scale, shift = net(still).chunk(2, -1)
        log_scale = torch.tanh(log_scale)
        z = torch.cat([still, moved * torch.exp(log_scale) + shift], -1)
        return (0.5 * z.square().sum(-1) - log_scale.sum(-1)).mean() - torch.linalg.slogdet(model.mix).logabsdet

    return model, step
