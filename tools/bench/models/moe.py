"""Mixtral from transformers: 3 layers, width 256, four experts of which a token takes two; AdamW."""

import torch
from transformers import AutoModelForCausalLM, MixtralConfig

from . import Workload
from .parts import WordBatches, language_model

VOCABULARY = 1024
LENGTH = 128


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    config = MixtralConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=LENGTH,
        output_router_logits=True,
        pad_token_id=0,
        bos_token_id=3,
        eos_token_id=3,
        use_cache=False,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.set_experts_implementation("eager")  # a loop over the experts, as older releases have it
    return language_model(model, checkpoint, WordBatches(batch, LENGTH, VOCABULARY, seed))
