"""DPO: a log-sigmoid of differences of summed token log-probabilities against a frozen reference model; a few
well-separated pairs saturate."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(96, 64)
        self.attention_norm, self.norm = nn.LayerNorm(64), nn.LayerNorm(64)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.up, self.down, self.head = nn.Linear(64, 256), nn.Linear(256, 64), nn.Linear(64, 96)

    def forward(self, tokens):
        x = self.embedding(tokens)
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return self.head(x + self.down(F.gelu(self.up(self.norm(x)))))


def log_probabilities(logits, labels, mask):
    picked = torch.gather(logits.log_softmax(-1), 2, labels[:, :, None]).squeeze(2)
    return (picked * mask).sum(-1)


def make(rng):
    policy = Language()
    reference = copy.deepcopy(policy).requires_grad_(False)
    with torch.no_grad():
        policy.head.weight.add_(0.1 * torch.randn(policy.head.weight.shape, generator=rng))
    model = nn.ModuleDict({"policy": policy, "reference": reference})

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = torch.randint(96, (12, 33), generator=generator)
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        mask = (torch.arange(32) >= torch.randint(4, 16, (12, 1), generator=generator)).float()
        with torch.no_grad():
            base = log_probabilities(reference(inputs), labels, mask)
        gain = log_probabilities(policy(inputs), labels, mask) - base
        chosen, rejected = gain.chunk(2)
        return -F.logsigmoid(0.5 * (chosen - rejected)).mean()

    return model, step
