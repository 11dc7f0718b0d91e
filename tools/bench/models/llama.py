"""Llama from transformers, 4 layers, width 256, trained under bf16 autocast; AdamW."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from . import Workload
from .parts import WordBatches, train_transformer

VOCABULARY = 4096
LENGTH = 128


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
        pad_token_id=0,
        bos_token_id=3,
        eos_token_id=3,
        use_cache=False,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    optimizer = train_transformer(model, checkpoint)

    def loss(tokens):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(input_ids=tokens, labels=tokens).loss

    return Workload(model, optimizer, WordBatches(batch, LENGTH, VOCABULARY, seed), loss)
