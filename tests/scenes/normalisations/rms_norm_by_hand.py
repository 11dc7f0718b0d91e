"""x * rsqrt(mean(x^2)) in float32 and a learned gain, as Llama has it, between linear layers on a residual stream."""

import torch


def rms_norm(x, gain):
    variance = x.float().pow(2).mean(-1, keepdim=True)
    return gain * (x * torch.rsqrt(variance + 1e-6))


def make(rng):
    model = torch.nn.ModuleList(
        [torch.nn.Embedding(100, 96), torch.nn.Linear(96, 192), torch.nn.Linear(192, 96), torch.nn.Linear(96, 100)]
    )
    model.gains = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(96)) for _ in range(2))

    def step(i):
        tokens = torch.randint(100, (96,), generator=torch.Generator().manual_seed(i))
        x = model[0](tokens)
        x = x + model[2](torch.nn.functional.silu(model[1](rms_norm(x, model.gains[0]))))
        return torch.nn.functional.cross_entropy(model[3](rms_norm(x, model.gains[1])), tokens.roll(-1))

    return model, step
