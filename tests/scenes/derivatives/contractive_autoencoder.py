"""A contractive autoencoder: the Jacobian of the code with respect to the input, row by row with create_graph, is
penalised."""

import torch

VALUES = True


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(48, 24), torch.nn.Linear(24, 48)])

    def step(i):
        x = torch.randn(64, 48, generator=torch.Generator().manual_seed(i)).requires_grad_()
        code = torch.sigmoid(model[0](x))
        rows = [torch.autograd.grad(code[:, k].sum(), x, create_graph=True)[0] for k in range(0, 24, 4)]
        penalty = sum(row.square().sum() for row in rows) / 64
        return torch.nn.functional.mse_loss(model[1](code), x) + 0.1 * penalty, [penalty]

    return model, step
