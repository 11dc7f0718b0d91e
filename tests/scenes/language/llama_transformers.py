"""LlamaForCausalLM of transformers: its RMS norm by hand, rotary embeddings and SwiGLU; the rule must allow noise here."""

import torch
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

SLOW = True  # the import of transformers takes seconds


def make(rng):
    model = LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=2,
            vocab_size=96,
            hidden_size=64,
            intermediate_size=128,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
        )  # fmt: skip
    )

    def step(i):
        generator = torch.Generator().manual_seed(i)
        tokens = (torch.randint(96, (4, 1), generator=generator) + torch.arange(32) * 5) % 96
        return model(tokens, labels=tokens, use_cache=False).loss

    return model, step
