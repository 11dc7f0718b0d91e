"""A classifier whose inputs ask for gradients at the first step only, to inspect them; plain training from then on."""

import torch

VALUES = True


def make(rng):
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 96), torch.nn.GELU(), torch.nn.Linear(96, 96), torch.nn.GELU(), torch.nn.Linear(96, 10)
    )

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(96, 32, generator=data).requires_grad_(i == 0)
        loss = torch.nn.functional.cross_entropy(model(x), torch.randint(10, (96,), generator=data))
        if i:
            return loss, []
        return loss, [torch.autograd.grad(loss, x, retain_graph=True)[0]]

    return model, step
