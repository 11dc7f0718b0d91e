"""A sigmoid recorded under a user's hooks, its loss outside of them: the product with another activation waits in
between."""

import torch


def forward(model, x):
    u, v = model(x).chunk(2, -1)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
        gate = torch.tanh(0.2 * v)
    return -torch.log(torch.sigmoid(5 * u) * (1.01 + gate) + 1e-7).mean()


def make(rng):
    model = torch.nn.Linear(32, 192)

    def step(i):
        return forward(model, torch.randn(64, 32, generator=torch.Generator().manual_seed(i)))

    return model, step
