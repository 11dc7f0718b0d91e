"""logsigmoid of logits that are right by 8, as in skip-gram and DPO, next to one group that is wrong."""

import torch


def make(rng):
    model = torch.nn.ModuleList([torch.nn.Embedding(200, 64), torch.nn.Embedding(200, 64)])

    def step(i):
        data = torch.Generator().manual_seed(i)
        word, context = (torch.randint(200, (400,), generator=data) for _ in range(2))
        score = (model[0](word) * model[1](context)).sum(-1) * 0.2
        sign = torch.where(torch.arange(400) < 256, 8.0, -2.0)
        return -torch.nn.functional.logsigmoid(score + sign).mean()

    return model, step
