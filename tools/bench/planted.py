#!/usr/bin/env python3
"""Noise of the gradients of models as trained ones are: planted (planting.py) beside the same weights not planted.

For each group of parameters (a weight of every layer; embeddings are left out): the relative error of a matrix's gradient,
median and worst over matrices, steps and seeds; and the root mean square over input channels of the error of a column's
gradient, relative to the column's own norm, as Adam weighs channels. Then the payload's bytes for each element. Gradients
under Pleat are compared with those of stock for the same steps; the first step, in which Pleat meets the tensors, is left
out. --lib names another build, and so compares before and after.

--train STEPS: trains a small planted Llama with Adam, exact and at each of --bits, and prints the mean loss of the last
tenth over that of exact, seed by seed, next to the spread of exact's own seeds.
"""

from __future__ import annotations

import argparse
import re
import statistics
from concurrent.futures import ThreadPoolExecutor

import gradients
import harness
from harness import Problem, Row

MODELS = {
    "llama": {"batch": 4, "width": 512, "autocast": False}, "bert": {"batch": 4}, "vit": {"batch": 4}, "t5": {"batch": 4},
}  # fmt: skip
NO_INPUT_CHANNELS = ("embed", "shared", "relative_attention_bias", "class_token")  # nor columns that a product reads
SMALL_LLAMA = {"batch": 8, "width": 256, "layers": 2, "length": 48, "vocabulary": 512, "autocast": False}


def workload(name: str, planted: bool, seed: int, **sizes):
    import planting
    from models import build
    from torch import nn

    built = build(name, seed=seed, **sizes)
    for parameter in built.model.parameters():
        if parameter.dim() > 1 and not parameter.any():  # torchvision's head, behind which no gradient is left
            nn.init.normal_(parameter, std=0.02)
    if planted:
        planting.plant(built.model, seed)
    return built


def measure(name: str, planted: bool, arguments: argparse.Namespace, library) -> dict:
    """{"groups": {group: [(whole, by column)]}, "payload": share}."""
    groups: dict[str, list] = {}
    shares = []
    for seed in range(arguments.seeds):
        harness.progress(f"{name}{', planted' * planted}, seed {seed}")
        spec = {"name": name, "planted": planted, "seed": seed, "steps": arguments.steps, **MODELS[name]}
        pair = gradients.pair("planted", spec, f"bits:{arguments.bits[0]}", library, arguments.threads)
        for exact, noisy in pair.steps(first=1):
            for parameter, want in exact.items():
                if want.dim() > 1 and not any(word in parameter for word in NO_INPUT_CHANNELS):
                    have = noisy[parameter]
                    group = re.sub(r"\d+", "*", parameter, count=1)
                    groups.setdefault(group, []).append((gradients.error(have, want), gradients.column_error(have, want)))
        shares.append(gradients.payload_share(pair.pleat))
    harness.progress("")
    groups["all"] = [one for found in groups.values() for one in found]
    return {"groups": groups, "payload": statistics.fmean(shares)}


def figures(found: list) -> tuple[float, float, float, float]:
    """Median and worst of whole matrices; root mean square over columns, of all and of the worst matrix."""
    whole, by_column = zip(*found)
    return statistics.median(whole), max(whole), statistics.fmean(c * c for c in by_column) ** 0.5, max(by_column)


COLUMNS = [
    "planted / not", "median", "", "worst", "", "columns' rms", "", "planted/not", "worst matrix", "",
]  # fmt: skip


def report(name: str, plain: dict, planted: dict) -> str:
    lines = []
    for group, found in planted["groups"].items():
        new, old = figures(found), figures(plain["groups"][group])
        pairs = [f"{value:.3f}" for n, o in zip(new, old) for value in (n, o)]
        lines.append([group, *pairs[:6], f"{new[2] / old[2]:.2f}", *pairs[6:]])
    share, before = planted["payload"], plain["payload"]
    return (
        f"{name}\n{harness.table(COLUMNS, lines)}\n"
        f"payload, bytes of each element: {4 * share:.3f} planted, {4 * before:.3f} not, {share / before:.3f} times\n"
    )


def train(arguments: argparse.Namespace, library) -> str:
    """The table of --train."""
    rows = [Row("exact"), *(Row(f"{bits} bits", f"bits:{bits}") for bits in arguments.bits)]
    tasks = [(row, seed) for row in rows for seed in range(arguments.seeds)]

    def last_loss(task) -> float:
        row, seed = task
        spec = {"name": "llama", "planted": True, "seed": seed, "steps": arguments.train, "train": arguments.rate, **SMALL_LLAMA}
        losses = gradients.run("planted", spec, row, library, 1)["losses"]
        return statistics.fmean(losses[-max(1, len(losses) // 10) :])

    with ThreadPoolExecutor(arguments.threads) as pool:
        losses = dict(zip(tasks, pool.map(last_loss, tasks), strict=True))
    exact = [losses[rows[0], seed] for seed in range(arguments.seeds)]
    lines = []
    for row in rows:
        ratios = [losses[row, seed] / exact[seed] for seed in range(arguments.seeds)]
        mean = statistics.fmean(losses[row, seed] for seed in range(arguments.seeds))
        lines.append([row.name, f"{mean:.4f}", f"{statistics.fmean(ratios):.4f}", *(f"{ratio:.4f}" for ratio in ratios)])
    spread = statistics.stdev(exact) / statistics.fmean(exact) if len(exact) > 1 else float("nan")
    return (
        harness.table(["loss", "mean", "over exact", *(f"seed {seed}" for seed in range(arguments.seeds))], lines)
        + f"\nexact's own seeds: standard deviation {spread:.4f} of the mean"
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="examples:\n  python tools/bench/planted.py\n  python tools/bench/planted.py --model llama --lib OLD/libpleat.so\n"
        "  python tools/bench/planted.py --train 300 --bits 4,3,2 --seeds 4",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default=",".join(MODELS), help="models, with commas (default: all)")
    parser.add_argument("--bits", default="4", help="of Pleat (default 4); with --train several, with commas")
    parser.add_argument("--steps", type=int, default=4, help="per seed (default 4)")
    parser.add_argument("--seeds", type=int, default=2, help="of weights and data (default 2)")
    parser.add_argument("--train", type=int, metavar="STEPS", help="losses of trainings, not gradients")
    parser.add_argument("--rate", type=float, default=1e-3, help="of Adam, with --train (default 1e-3)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lib", metavar="FILE", help="libpleat.so; default: build/lib/libpleat.so")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    names = [name for name in arguments.model.split(",") if name]
    for name in names:
        if name not in MODELS:
            raise Problem(f"no model named {name!r}; there are {', '.join(MODELS)}")
    arguments.bits = [harness.check_bits(bits) for bits in arguments.bits.split(",")]
    if min(arguments.steps - 1, arguments.seeds, arguments.threads) < 1:
        raise Problem("--steps must be at least 2, --seeds and --threads at least 1")
    library = harness.find_library(arguments.lib)
    if library is None:
        raise Problem(f"no libpleat.so: {harness.REMEDY}")
    if arguments.train:
        print(train(arguments, library))
        return 0
    for name in names:
        print(report(name, *(measure(name, planted, arguments, library) for planted in (False, True))), flush=True)
    return 0


if __name__ == "__main__":
    harness.run_main(main)
