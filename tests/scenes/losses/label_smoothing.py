"""Cross entropy with label smoothing by hand: log_softmax is read by a gather and by a mean over the classes."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.GELU(), torch.nn.Linear(96, 200))

    def step(i):
        data = torch.Generator().manual_seed(i)
        target = torch.randint(200, (96,), generator=data)
        logp = torch.log_softmax(6 * model(torch.randn(96, 48, generator=data)), -1)
        return (0.9 * -logp.gather(1, target[:, None]).squeeze(1) + 0.1 * -logp.mean(-1)).mean()

    return model, step
