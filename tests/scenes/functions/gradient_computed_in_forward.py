"""A loss that computes its gradient in forward and saves it (fused cross entropy of large vocabularies): returned as
it was saved."""

import torch


class FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, target):
        logits = x @ weight.T
        p = torch.softmax(logits, -1)
        loss = -torch.log(p.gather(1, target[:, None])).mean()
        p.scatter_add_(1, target[:, None], torch.full((len(target), 1), -1.0))
        p /= len(target)
        ctx.save_for_backward(p @ weight, p.T @ x)
        return loss

    @staticmethod
    def backward(ctx, gradient):
        dx, dw = ctx.saved_tensors
        return gradient * dx, gradient * dw, None


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Linear(32, 64), torch.nn.Linear(64, 300, bias=False)])

    def step(i):
        data = torch.Generator().manual_seed(i)
        x = torch.nn.functional.gelu(model[0](torch.randn(96, 32, generator=data)))
        return FusedCrossEntropy.apply(x, 3 * model[1].weight, torch.randint(300, (96,), generator=data))

    return model, step
