"""GPT-2 from transformers with its own vocabulary of 50,257: 2 layers, width 128; AdamW."""

from . import Workload
from .gpt2 import gpt2
from .parts import WordBatches, language_model

VOCABULARY = 50257
LENGTH = 128


def build(batch: int, checkpoint: bool, seed: int) -> Workload:
    model = gpt2(VOCABULARY, LENGTH, n_layer=2, n_embd=128, n_head=4)
    return language_model(model, checkpoint, WordBatches(batch, LENGTH, VOCABULARY, seed), learning_rate=1e-3)
