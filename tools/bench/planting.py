"""Plants what training makes of weights, without a change of the model's function.

Trained language models have channels 10 to 60 times the others at the inputs of their linear layers, and gains of their own
for the channels between two products. Random weights have neither. `plant(model)` multiplies

    the gain (and bias) of a normalisation by 30 for six channels, and divides the columns that read them,
    the rows of a linear layer whose result is only multiplied, by log-normal gains, and divides the columns behind.

In BERT a residual stream reads every normalisation, and a GELU the layer between, so neither fits. Rows of the values of
attention do, with the columns behind attention: six of 30 in BERT, log-normal gains in T5 and ViT.
"""

from __future__ import annotations

import torch

CHANNELS, TIMES, SIGMA = 6, 30.0, 0.6


def norms_and_readers(model: torch.nn.Module):
    """(normalisation, weights whose columns read its result) of each normalisation that only linear layers read."""
    last_of_encoder, reads_encoder = None, []
    for block in model.modules():
        match type(block).__name__:
            case "LlamaForCausalLM":
                yield block.model.norm, [block.lm_head.weight]
            case "LlamaDecoderLayer":
                attention = block.self_attn
                yield block.input_layernorm, [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]
                yield block.post_attention_layernorm, [block.mlp.gate_proj.weight, block.mlp.up_proj.weight]
            case "VisionTransformer":  # torchvision's
                yield block.encoder.ln, [block.heads.head.weight]
            case "EncoderBlock":
                yield block.ln_1, [block.self_attention.in_proj_weight]
                yield block.ln_2, [block.mlp[0].weight]
            case "T5Stack" if not block.is_decoder:
                last_of_encoder = block.final_layer_norm
            case "T5LayerSelfAttention":
                yield block.layer_norm, [getattr(block.SelfAttention, name).weight for name in "qkv"]
            case "T5LayerCrossAttention":
                yield block.layer_norm, [block.EncDecAttention.q.weight]
                reads_encoder += [block.EncDecAttention.k.weight, block.EncDecAttention.v.weight]
            case "T5LayerFF":
                yield block.layer_norm, [block.DenseReluDense.wi_0.weight, block.DenseReluDense.wi_1.weight]
    if reads_encoder:
        yield last_of_encoder, reads_encoder


def rows_and_columns(model: torch.nn.Module):
    """(rows of a weight, their bias or None, weight whose columns read them, whether the gains are six of 30) of each pair
    with nothing but products and sums by channel between."""
    for block in model.modules():
        match type(block).__name__:
            case "LlamaMLP":
                yield block.up_proj.weight, None, block.down_proj.weight, False
            case "T5DenseGatedActDense":
                yield block.wi_1.weight, None, block.wo.weight, False
            case "T5Attention":
                yield block.v.weight, None, block.o.weight, False
            case "BertAttention":
                values = block.self.value
                yield values.weight, values.bias, block.output.dense.weight, True
            case "MultiheadAttention":
                width = block.embed_dim
                yield block.in_proj_weight[2 * width :], block.in_proj_bias[2 * width :], block.out_proj.weight, False


@torch.no_grad()
def plant(model: torch.nn.Module, seed: int = 0) -> None:
    random = torch.Generator().manual_seed(seed)
    pairs = 0
    for norm, readers in norms_and_readers(model):
        outliers = six_of(norm.weight, random)
        for gain in (norm.weight, getattr(norm, "bias", None)):
            if gain is not None:
                gain[outliers] *= TIMES
        for weight in readers:
            weight[:, outliers] /= TIMES
        pairs += 1
    for rows, bias, columns, only_six in rows_and_columns(model):
        gains = torch.exp(SIGMA * torch.randn(len(rows), generator=random)).to(rows.dtype)
        if only_six:
            gains = torch.ones_like(gains).index_fill(0, six_of(gains, random), TIMES)
        rows *= gains[:, None]
        if bias is not None:
            bias *= gains
        columns /= gains
        pairs += 1
    assert pairs, f"{type(model).__name__} has no places to plant"


def six_of(channels: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    return torch.randperm(len(channels), generator=random)[:CHANNELS]
