"""BERT with a masked-language-model head from transformers: 4 layers, width 512; AdamW."""

import torch
from transformers import AutoModelForMaskedLM, BertConfig

from . import Workload
from .parts import WordBatches, train_transformer

# Small on purpose: the logits of a large vocabulary are transients that drown the saved tensors.
VOCABULARY = 1024
LENGTH = 128
MASK = 2


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        intermediate_size=2048,
        max_position_embeddings=LENGTH,
    )
    model = AutoModelForMaskedLM.from_config(config, attn_implementation="eager")
    optimizer = train_transformer(model, checkpoint)
    words = WordBatches(batch, LENGTH, VOCABULARY, seed)

    def make_batch(step):
        tokens, guessed, masked = words.masked(step, MASK)
        return masked, tokens.masked_fill(~guessed, -100)

    def loss(data):
        tokens, labels = data
        return model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=labels).loss

    return Workload(model, optimizer, make_batch, loss)
