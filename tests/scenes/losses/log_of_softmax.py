"""log(softmax(x)) in two operators with a gather, as tutorials write it: small probabilities are at the pole."""

import torch


def make(rng):
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))

    def step(i):
        data = torch.Generator().manual_seed(i)
        target = torch.randint(64, (96, 1), generator=data)
        p = model(torch.randn(96, 32, generator=data)).mul(10).softmax(-1)
        return -p.gather(1, target).log().mean()

    return model, step
