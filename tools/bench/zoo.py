#!/usr/bin/env python3
"""Models of transformers that normalise queries, keys or other projections, on texts with separators and padding.

The models are tiny and have random weights; separators and padding have a zero embedding, as padding_idx makes it. Three
of 1,024 tokens are separators, and in the second line of a model a quarter of the texts ends with padding, too. Printed is
the parameter whose gradient is farthest from that of stock for the same step, among those above 1 % of the largest norm,
and the payload's share of the saved bytes. The first step, in which Pleat meets the tensors, is left out.
"""

from __future__ import annotations

import argparse

import gradients
import harness
from harness import Problem

WIDTH, LENGTH, BATCH, VOCABULARY = 96, 128, 8, 512
BAR = 0.25
COMMON = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2, "pad_token_id": 0, "use_cache": False}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "intermediate_size": 192}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 96}
# The configuration's class, and what is not its default.
CONFIGURATIONS = {
    "gemma3": ("Gemma3TextConfig", COMMON | HEADS | {"sliding_window": 32}),
    "deepseek_v3": ("DeepseekV3Config", COMMON | EXPERTS | {
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 192, "n_routed_experts": 4, "n_group": 2,
        "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 48, "kv_lora_rank": 32, "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16, "v_head_dim": 24,
    }),
    "qwen3_moe": ("Qwen3MoeConfig", COMMON | HEADS | EXPERTS | {"num_experts": 4}),
    "gpt_oss": ("GptOssConfig", COMMON | HEADS | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 32}),
    "rwkv": ("RwkvConfig", {
        "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2, "attention_hidden_size": WIDTH,
        "intermediate_size": 192, "context_length": LENGTH, "use_cache": False,
    }),
    "t5": ("T5Config", {
        "vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 24, "d_ff": 192, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0,
        "pad_token_id": 0, "decoder_start_token_id": 0, "use_cache": False,
    }),
}  # fmt: skip


def workload(name: str, padding: bool, seed: int):
    import torch
    import transformers
    from models import Workload

    kind, values = CONFIGURATIONS[name]
    torch.manual_seed(seed)
    config = getattr(transformers, kind)(**values)
    kinds = transformers.AutoModelForSeq2SeqLM if name == "t5" else transformers.AutoModelForCausalLM
    model = kinds.from_config(config, dtype=torch.float32)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    with torch.no_grad():
        model.get_input_embeddings().weight[0] = 0

    def batch(step):
        random = torch.Generator().manual_seed(1000 * seed + step)
        tokens = torch.randint(1, VOCABULARY, (BATCH, 1), generator=random) + torch.arange(LENGTH) * 7
        tokens = 1 + tokens % (VOCABULARY - 1)
        present = torch.ones(BATCH, LENGTH, dtype=torch.long)
        if padding:
            present[::4, 3 * LENGTH // 4 :] = 0
        tokens[[1, 3, 6], [43, 21, 12]] = 0  # separators, all but for the first rows of groups
        return tokens * present, present

    def loss(data):
        tokens, present = data
        labels = tokens.masked_fill(present == 0, -100)
        if name == "t5":
            labels = labels[:, : LENGTH // 2].contiguous()
        mask = {} if name == "rwkv" else {"attention_mask": present}
        return model(input_ids=tokens, labels=labels, **mask).loss

    return Workload(model.train(), None, batch, loss)


def measure(name: str, padding: bool, arguments: argparse.Namespace, library) -> list[str]:
    """A line of the table."""
    worst, share = (-1.0, ""), 0.0
    for seed in range(arguments.seeds):
        spec = {"name": name, "padding": padding, "seed": seed, "steps": arguments.steps}
        pair = gradients.pair("zoo", spec, f"bits:{arguments.bits},min_bytes:0", library, arguments.threads)
        for exact, noisy in pair.steps(first=1):
            largest = max(float(gradient.norm()) for gradient in exact.values())
            judged = [parameter for parameter, gradient in exact.items() if float(gradient.norm()) > 0.01 * largest]
            worst = max([worst, *((gradients.error(noisy[one], exact[one]), one) for one in judged)])
        share += gradients.payload_share(pair.pleat) / arguments.seeds
    error, parameter = worst
    return [f"{name}{', padding' * padding}", f"{error:.3g}", "yes" if error <= BAR else "no", f"{share:.3f}", parameter]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="examples:\n  python tools/bench/zoo.py\n  python tools/bench/zoo.py --model gemma3,t5 --lib OLD/libpleat.so",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default=",".join(CONFIGURATIONS), help="models, with commas (default: all)")
    parser.add_argument("--bits", default="4", help="of Pleat (default 4)")
    parser.add_argument("--steps", type=int, default=3, help="per seed (default 3)")
    parser.add_argument("--seeds", type=int, default=1, help="of weights and data (default 1)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lib", metavar="FILE", help="libpleat.so; default: build/lib/libpleat.so")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    names = [name for name in arguments.model.split(",") if name]
    for name in names:
        if name not in CONFIGURATIONS:
            raise Problem(f"no model named {name!r}; there are {', '.join(CONFIGURATIONS)}")
    arguments.bits = harness.check_bits(arguments.bits)
    if min(arguments.steps - 1, arguments.seeds, arguments.threads) < 1:
        raise Problem("--steps must be at least 2, --seeds and --threads at least 1")
    library = harness.find_library(arguments.lib)
    if library is None:
        raise Problem(f"no libpleat.so: {harness.REMEDY}")
    lines = [measure(name, padding, arguments, library) for name in names for padding in (False, True)]
    print(harness.table(["separators", "worst error", f"at most {BAR}", "kept", "parameter"], lines))
    return 0


if __name__ == "__main__":
    harness.run_main(main)
