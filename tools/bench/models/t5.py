"""T5 from transformers, 3 + 3 layers, width 256, gated GELU, that fills gaps in 128 tokens; AdamW."""

import torch
from transformers import T5Config, T5ForConditionalGeneration

from . import Workload
from .parts import WordBatches

VOCABULARY = 1024
LENGTH = 128
MASK = 2


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=256,
        d_kv=32,
        d_ff=512,
        num_layers=3,
        num_heads=8,
        feed_forward_proj="gated-gelu",
        pad_token_id=0,
        decoder_start_token_id=0,
        use_cache=False,
    )
    model = T5ForConditionalGeneration(config)
    if checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    words = WordBatches(batch, LENGTH, VOCABULARY, seed)

    def make_batch(step):
        tokens = words(step)
        random = torch.Generator().manual_seed(seed * 1_000_003 + step + 1)
        masked = torch.rand(tokens.shape, generator=random) < 0.15
        return tokens.masked_fill(masked, MASK), tokens[:, : LENGTH // 2].contiguous()

    def loss(data):
        tokens, labels = data
        return model(input_ids=tokens, labels=labels).loss

    return Workload(model, optimizer, make_batch, loss)
