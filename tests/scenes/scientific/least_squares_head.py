"""Ridge regression in closed form on a network's features (meta-learning, reservoirs): solve() within the graph."""

import torch


def ridge(features, target):
    gram = features.T @ features + 1e-2 * torch.eye(features.shape[1])
    return torch.linalg.solve(gram, features.T @ target)


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 48))

    def step(i):
        data = torch.Generator().manual_seed(i)
        support, query = torch.randn(96, 16, generator=data), torch.randn(96, 16, generator=data)
        head = ridge(model(support), torch.sin(2 * support[:, :8]))
        return (model(query) @ head - torch.sin(2 * query[:, :8])).square().mean()

    return model, step
