"""GPT-2 from transformers: 4 layers, width 512, 8 heads; AdamW."""

from transformers import AutoModelForCausalLM, GPT2Config

from . import Workload
from .parts import WordBatches, language_model

# Small on purpose: the logits of a large vocabulary are transients that drown the saved tensors.
VOCABULARY = 1024
LENGTH = 256


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = gpt2(VOCABULARY, LENGTH, n_layer=4, n_embd=512, n_head=8)
    return language_model(model, checkpoint, WordBatches(batch, LENGTH, VOCABULARY, seed))


def gpt2(vocabulary: int, length: int, **sizes: int):
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=length, bos_token_id=3, eos_token_id=3, use_cache=False, **sizes
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")
