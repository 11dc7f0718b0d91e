"""Fine-tuning with batch norm in evaluation: the norm is a gain without statistics of the data, and a sigmoid and a
log follow."""

import torch
from torch import nn


class Tuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, 24, 3, padding=1, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU(),
        )
        self.head, self.norm = nn.Conv2d(24, 4, 1), nn.BatchNorm2d(4)
        for norm in (self.features[1], self.features[4]):
            nn.init.uniform_(norm.running_var, 0.1, 0.5)
            nn.init.normal_(norm.running_mean, std=0.2)
        nn.init.constant_(self.norm.running_var, 0.002)
        self.eval()

    def forward(self, x):
        return self.norm(self.head(self.features(x)))


def loss_of(logits, target):
    probability = torch.sigmoid(logits)
    return -(target * torch.log(probability + 1e-7) + (1 - target) * torch.log(1 - probability + 1e-7)).mean()


def make(rng):
    model = Tuned()

    def step(i):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(8, 3, 16, 16, generator=generator)
        return loss_of(model(x), (x.sum(1, keepdim=True) > torch.tensor([-1.0, 0, 1, 2])[:, None, None]).float())

    return model, step
