"""A function under torch.compile with the eager backend and a graph break: its nodes are plain ones, recorded in
pieces."""

import torch


@torch.compile(backend="eager")
def loss_of(u):
    p = torch.sigmoid(u)
    torch._dynamo.graph_break()
    return -torch.log(1 - p + 1e-7).mean()


def make(rng):
    model = torch.nn.Linear(32, 128)

    def step(i):
        return loss_of(5 * model(torch.randn(64, 32, generator=torch.Generator().manual_seed(i))) + 3)

    return model, step
