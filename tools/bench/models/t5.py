"""T5 from transformers, 3 + 3 layers, width 256, gated GELU, that fills gaps in 128 tokens; AdamW."""

from transformers import T5Config, T5ForConditionalGeneration

from . import Workload
from .parts import WordBatches, train_transformer

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
    optimizer = train_transformer(model, checkpoint)
    words = WordBatches(batch, LENGTH, VOCABULARY, seed)

    def make_batch(step):
        tokens, _, masked = words.masked(step, MASK)
        return masked, tokens[:, : LENGTH // 2].contiguous()

    def loss(data):
        tokens, labels = data
        return model(input_ids=tokens, labels=labels).loss

    return Workload(model, optimizer, make_batch, loss)
