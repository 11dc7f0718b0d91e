"""Llama from transformers, 4 layers, width 256, trained under bf16 autocast; AdamW. planted.py has other sizes, in float32."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from . import Workload
from .parts import WordBatches, train_transformer

VOCABULARY = 4096
LENGTH = 128


def build(
    batch: int,
    checkpoint: bool,
    seed: int,
    width: int = 256,
    layers: int = 4,
    length: int = LENGTH,
    vocabulary: int = VOCABULARY,
    autocast: bool = True,
) -> Workload:
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=width * 43 // 16,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=length,
        pad_token_id=0,
        bos_token_id=3,
        eos_token_id=3,
        use_cache=False,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    optimizer = train_transformer(model, checkpoint)

    def loss(tokens):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            return model(input_ids=tokens, labels=tokens).loss

    return Workload(model, optimizer, WordBatches(batch, length, vocabulary, seed), loss)
