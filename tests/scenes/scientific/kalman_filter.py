"""A Kalman filter's likelihood over thirty steps with learned dynamics: an innovation's inverse and log-determinant
at each."""

import torch


def make(rng):
    leaves = [
        0.3 * torch.randn(8, 8, generator=rng),
        torch.randn(4, 8, generator=rng),
        torch.full((8,), -2.0),
        torch.full((4,), -3.0),
    ]
    leaves = [leaf.requires_grad_() for leaf in leaves]

    def step(i):
        dynamics, observe, q, r = leaves
        data = torch.Generator().manual_seed(i)
        mean, covariance, loss = torch.zeros(16, 8), torch.eye(8), 0.0
        for _ in range(20):
            mean, covariance = mean @ dynamics.T, dynamics @ covariance @ dynamics.T + torch.diag(q.exp())
            innovation = torch.randn(16, 4, generator=data) - mean @ observe.T
            s = observe @ covariance @ observe.T + torch.diag(r.exp())
            gain = torch.linalg.solve(s, observe @ covariance).T
            loss = loss + 0.5 * (torch.logdet(s) + (innovation @ torch.linalg.inv(s) * innovation).sum(-1).mean())
            mean, covariance = mean + innovation @ gain.T, covariance - gain @ observe @ covariance
        return loss / 20

    return leaves, step
