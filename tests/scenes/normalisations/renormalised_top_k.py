"""The top two of a softmax divided by their own sum, as Mixtral's router does, weigh the experts' outputs."""

import torch


def make(rng):
    experts = torch.nn.ModuleList(
        torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.SiLU(), torch.nn.Linear(64, 48)) for _ in range(4)
    )
    model = torch.nn.ModuleList([torch.nn.Linear(48, 4), experts, torch.nn.Linear(48, 8)])

    def route(x):
        weights, chosen = torch.softmax(model[0](x), -1).topk(2)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for n, expert in enumerate(experts):
            rows, place = torch.where(chosen == n)
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, place, None])
        return out

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.randn(96, 48, generator=data)
        return (model[2](x + route(x)) - torch.randn(96, 8, generator=data)).square().mean()

    return model, step
