"""GPT-2 from transformers: 4 layers, width 512, 8 heads; AdamW."""

import torch
from transformers import AutoModelForCausalLM, GPT2Config

from . import Workload
from .parts import WordBatches

# Small on purpose: the logits of a large vocabulary are transients that drown the saved tensors.
VOCABULARY = 1024
LENGTH = 256


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_layer=4,
        n_embd=512,
        n_head=8,
        n_positions=LENGTH,
        bos_token_id=3,
        eos_token_id=3,
        use_cache=False,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    if checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    words = WordBatches(batch, LENGTH, VOCABULARY, seed)
    return Workload(model, optimizer, words, lambda tokens: model(input_ids=tokens, labels=tokens).loss)
