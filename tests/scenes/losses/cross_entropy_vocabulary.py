"""Cross entropy over a vocabulary after a transformer-like head: the largest tensor of a language model's step."""

import torch


def make(rng):
    table = torch.nn.Embedding(1000, 48)
    model = torch.nn.Sequential(
        table, torch.nn.Linear(48, 96), torch.nn.GELU(), torch.nn.LayerNorm(96), torch.nn.Linear(96, 1000)
    )

    def step(i):
        data = torch.Generator().manual_seed(i)
        tokens = torch.randint(1000, (48,), generator=data)
        return torch.nn.functional.cross_entropy(8 * model(tokens), (tokens + 1) % 1000)

    return model, step
