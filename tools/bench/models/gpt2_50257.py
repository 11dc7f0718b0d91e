"""GPT-2 from transformers with its own vocabulary of 50,257: 2 layers, width 128; AdamW."""

import torch
from transformers import AutoModelForCausalLM, GPT2Config

from . import Workload
from .parts import WordBatches

VOCABULARY = 50257
LENGTH = 128


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_layer=2,
        n_embd=128,
        n_head=4,
        n_positions=LENGTH,
        bos_token_id=3,
        eos_token_id=3,
        use_cache=False,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    if checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    words = WordBatches(batch, LENGTH, VOCABULARY, seed)
    return Workload(model, optimizer, words, lambda tokens: model(input_ids=tokens, labels=tokens).loss)
