"""A sparse autoencoder's divergence of the mean sigmoid activation: a logarithm recorded after the decoder has read
the code."""

import torch


def sparsity(code, rho=0.05):
    mean = code.mean(0)
    return (rho * torch.log(rho / (mean + 1e-8)) + (1 - rho) * torch.log((1 - rho) / (1 - mean + 1e-8))).sum()


def per_sample(code, rho=0.05):
    return (rho * torch.log(rho / (code + 1e-6)) + (1 - rho) * torch.log((1 - rho) / (1 - code + 1e-6))).mean()


def forward(encoder, decoder, x):
    code = torch.sigmoid(encoder(x) * 3 - 4)
    return torch.nn.functional.mse_loss(decoder(code), x) + 1e-3 * sparsity(code) + 0.1 * per_sample(code)


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)])

    def step(i):
        return forward(*model, torch.randn(96, 64, generator=torch.Generator().manual_seed(i)))

    return model, step
