"""A loss on the log magnitude and the phase of a two-dimensional FFT (focal frequency, super-resolution)."""

import torch


def spectral_loss(a, b):
    fa, fb = torch.fft.rfft2(a, norm="ortho"), torch.fft.rfft2(b, norm="ortho")
    return (torch.log(fa.abs() + 1e-4) - torch.log(fb.abs() + 1e-4)).abs().mean() + 0.1 * (fa - fb).abs().mean()


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 12, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(12, 1, 3, padding=1)
    )

    def step(i):
        data = torch.Generator().manual_seed(i)
        image = torch.randn(4, 1, 24, 24, generator=data)
        return spectral_loss(model(image), image.roll(2, -1))

    return model, step
