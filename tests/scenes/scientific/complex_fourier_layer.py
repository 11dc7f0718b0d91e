"""A Fourier neural operator's layer: rfft, complex weights on the low modes by einsum, irfft, next to a pointwise path."""

import torch


class Spectral(torch.nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weight = torch.nn.Parameter(torch.randn(width, width, modes, dtype=torch.cfloat) / width)

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        low = torch.einsum("bim,iom->bom", spectrum[..., : self.modes], self.weight)
        return torch.fft.irfft(torch.nn.functional.pad(low, (0, spectrum.shape[-1] - self.modes)), n=x.shape[-1])


def make(rng):
    lift, drop = torch.nn.Conv1d(2, 16, 1), torch.nn.Conv1d(16, 1, 1)
    model = torch.nn.ModuleList([lift, Spectral(16, 12), torch.nn.Conv1d(16, 16, 1), drop])

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = lift(torch.randn(8, 2, 64, generator=data))
        x = torch.nn.functional.gelu(model[1](x) + model[2](x))
        return (drop(x) - torch.randn(8, 1, 64, generator=data)).square().mean()

    return model, step
