"""WaveNet-like dilated convolutions with a weight norm, tanh times sigmoid, and skip connections summed up."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm


class Layer(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.dilated = weight_norm(nn.Conv1d(channels, 2 * channels, 3, padding=dilation, dilation=dilation))
        self.both = weight_norm(nn.Conv1d(channels, 2 * channels, 1))

    def forward(self, x):
        a, b = self.dilated(x).chunk(2, dim=1)
        residual, skip = self.both(torch.tanh(a) * torch.sigmoid(b)).chunk(2, dim=1)
        return (x + residual) * 0.5**0.5, skip


def make(rng):
    model = nn.ModuleList([weight_norm(nn.Conv1d(1, 24, 1)), *(Layer(24, 2**i) for i in range(4)), weight_norm(nn.Conv1d(24, 1, 1))])

    def step(i):
        generator = torch.Generator().manual_seed(i)
        clean = torch.sin(torch.arange(256) * (0.05 + 0.2 * torch.rand(8, 1, 1, generator=generator)))
        x, total = model[0](clean + 0.3 * torch.randn(clean.shape, generator=generator)), 0
        for layer in model[1:-1]:
            x, skip = layer(x)
            total = total + skip
        return F.mse_loss(model[-1](F.relu(total)), clean)

    return model, step
