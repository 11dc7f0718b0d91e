"""VQ-VAE: distances to the codes pick one, `z + (q - z).detach()` hands the gradient straight through, and the codes
learn from small differences."""

import torch
from torch import nn
from torch.nn import functional as F


class VectorQuantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 32, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(32, 16, 3, padding=1))
        self.codes = nn.Embedding(64, 16)
        nn.init.uniform_(self.codes.weight, -0.5, 0.5)
        self.decoder = nn.Sequential(
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, stride=2, padding=1)
        )

    def quantise(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, 16)
        codes = self.codes.weight
        distance = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ codes.t() + codes.pow(2).sum(1)
        return self.codes(distance.argmin(1)).view(z.shape[0], z.shape[2], z.shape[3], 16).permute(0, 3, 1, 2)

    def forward(self, x):
        z = self.encoder(x)
        q = self.quantise(z)
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return self.decoder(z + (q - z).detach()), loss


def make(rng):
    model = VectorQuantised()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = F.interpolate(torch.randn(16, 1, 4, 4, generator=generator), size=16, mode="bilinear")
        image, commitment = model(x)
        return F.mse_loss(image, x) / 0.3 + commitment

    return model, step
