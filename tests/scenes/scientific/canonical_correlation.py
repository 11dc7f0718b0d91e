"""Deep CCA: the trace norm of whitened cross-covariance of two views, by Cholesky factors and a triangular solve."""

import torch


def correlation(a, b):
    a, b = a - a.mean(0), b - b.mean(0)
    n, eye = len(a) - 1, 1e-3 * torch.eye(a.shape[1])
    la, lb = torch.linalg.cholesky(a.T @ a / n + eye), torch.linalg.cholesky(b.T @ b / n + eye)
    t = torch.linalg.solve_triangular(la, a.T @ b / n, upper=False)
    t = torch.linalg.solve_triangular(lb, t.T, upper=False)
    return torch.trace(t @ t.T)


def make(rng):
    model = torch.nn.ModuleList(
        torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.Tanh(), torch.nn.Linear(64, 16)) for _ in range(2)
    )

    def step(i):
        data = torch.Generator().manual_seed(i)
        common = torch.randn(128, 24, generator=data)
        return -correlation(model[0](common), model[1](common + 0.5 * torch.randn(128, 24, generator=data)))

    return model, step
