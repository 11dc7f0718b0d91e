"""RecurrentGemma of transformers: a recurrent and an attention block; a Python function saves the argument of a root."""

import torch
from transformers.models.recurrent_gemma import modeling_recurrent_gemma
from transformers.models.recurrent_gemma.configuration_recurrent_gemma import RecurrentGemmaConfig

SLOW = True  # the import of transformers takes seconds


def make(rng):
    model = modeling_recurrent_gemma.RecurrentGemmaForCausalLM(
        RecurrentGemmaConfig(
            num_hidden_layers=2, vocab_size=96, hidden_size=64, intermediate_size=128, num_attention_heads=4,
            attention_window_size=16, block_types=["recurrent", "attention"], w_init_variance_scale=1.0,
        )  # fmt: skip
    )

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = (torch.randint(1, 96, (4, 1), generator=generator) + torch.arange(24) * 5) % 95 + 1
        return model(tokens, labels=tokens, use_cache=False).loss

    return model, step
