"""A compiled loss with a dynamic length after an eager softmax: it is recompiled once and then called with a symbol."""

import torch


@torch.compile(backend="aot_eager", dynamic=True)
def nll(p, target):
    return -torch.log(p.gather(1, target) + 1e-8).mean()


def forward(model, x, target):
    return nll(torch.softmax(8 * model(x), -1), target)


def make(rng):
    model = torch.nn.Linear(32, 128)

    def step(i):
        data = torch.Generator().manual_seed(i)
        n = 40 + 8 * i
        return forward(model, torch.randn(n, 32, generator=data), torch.randint(128, (n, 1), generator=data))

    return model, step
