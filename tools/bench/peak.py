#!/usr/bin/env python3
"""Peak memory and step time of Pleat against stock PyTorch and activation checkpointing.

peak ratio = (stock's peak - base) / (row's peak - base), base = stock's resident size once model, optimizer
and data exist; gradients, optimizer state and transients count on both sides. Step time = median step after
the first. Medians over pairs of fresh processes. The processes of a repeat take turns step by step, all but one
stopped, so that what disturbs the machine for longer than a step falls on all rows alike; they are in memory together
(--alternate runs: one process after the other).
"""

from __future__ import annotations

import argparse
import sys
import time

import harness
from harness import Problem, Row
from models import MODELS
from pleat_counters import summary

DEFAULT_ROWS = "stock,pleat,off,checkpoint,forward_end"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="models:\n" + "\n".join(f"  {name:15s}{entry.about}" for name, entry in MODELS.items())
        + f"\n\nrows: {', '.join(harness.ROWS)}, and conf=KEY:VALUE[;KEY:VALUE]"
        + "\n\nexamples:\n"
        "  python tools/bench/peak.py --model resnet50\n"
        "  python tools/bench/peak.py --model bert,gpt2 --rows pleat,checkpoint,pleat+checkpoint --json bert.json\n"
        "  python tools/bench/peak.py --model all --repeat 5 --json all.json\n"
        "  python tools/bench/peak.py --model chargpt --rows 'pleat,conf=bits:2;place:inplace' --repeat 2\n"
        "  python tools/bench/peak.py --model all --what-if --json what_if.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, help="a model, several with commas, or all")
    parser.add_argument("--batch", type=int, help="per step; default: the model's own")
    parser.add_argument("--steps", type=int, default=5, help="per run (default 5; at least 3, the second holds the peak)")
    parser.add_argument("--bits", default="4", help="of the Pleat rows (default 4)")
    parser.add_argument("--repeat", type=int, default=5, metavar="R", help="pairs per row (default 5)")
    parser.add_argument("--rows", default=DEFAULT_ROWS, help=f"default: {DEFAULT_ROWS}")
    parser.add_argument("--alternate", choices=("steps", "runs"), default="steps", help="what the rows of a repeat take turns with (default steps)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lib", metavar="FILE", help="libpleat.so; default: build/lib/libpleat.so")
    parser.add_argument("--what-if", action="store_true", help="instead: what a trace of a run at bits:off foretells of the "
                        "peak of Pleat's memory at --bits, against a run at these bits; both from `pleat trace`, one pair")
    parser.add_argument("--json", metavar="FILE", help="all runs, the machine, the date")
    return parser.parse_args()


def measure(model: str, rows: list[Row], arguments: argparse.Namespace, library) -> dict[str, list[dict]]:
    """All runs of one model: row name -> one result per repeat."""
    options = ["--model", model, "--steps", str(arguments.steps), "--seed", str(arguments.seed)]
    if arguments.batch:
        options += ["--batch", str(arguments.batch)]
    runs: dict[str, list[dict]] = {row.name: [] for row in rows}
    for repeat in range(arguments.repeat):
        order = harness.in_turn(rows, repeat)
        together = [order] if arguments.alternate == "steps" else [[row] for row in order]
        for group in together:
            harness.progress(f"{model}: repeat {repeat + 1} of {arguments.repeat}, {', '.join(row.name for row in group)}")
            for result in harness.train_side_by_side(group, options, library, arguments.threads):
                runs[result["row"]].append(result)
    harness.progress("")
    return runs


FORETOLD_WITHIN = 0.05


def foretell(model: str, arguments: argparse.Namespace, library) -> dict:
    """What a run at bits:off would have taken at --bits, as its trace has it, and what a run at --bits takes."""
    options = ["--model", model, "--steps", str(arguments.steps), "--seed", str(arguments.seed)]
    if arguments.batch:
        options += ["--batch", str(arguments.batch)]
    binaries = library.parents[1] / "bin"
    found = {}
    for bits in ("off", arguments.bits):
        harness.progress(f"{model}: a trace at bits:{bits}")
        run = harness.traced(f"bits:{bits}", "none", options, library, arguments.threads, binaries,
                             ("--what-if", arguments.bits) if bits == "off" else ())
        host = next(device for device in run["summary"]["devices"] if device["device"] == "host")
        found[bits] = host["peak_live"]["bytes"]
        if bits == "off":
            found["foretold"] = host["what_if"]["peak_live"]["bytes"]
    harness.progress("")
    return found | {"error": found["foretold"] / found[arguments.bits] - 1}


def report_foretold(found: dict[str, dict], bits: str) -> str:
    lines = [[model, harness.megabytes(one["off"]), harness.megabytes(one["foretold"]), harness.megabytes(one[bits]),
              f"{100 * one['error']:+.1f}", "" if abs(one["error"]) <= FORETOLD_WITHIN else "over 5 %"]
             for model, one in found.items()]
    return harness.table(["model", "off MB", f"foretold at {bits}", f"found at {bits}", "error %", ""], lines)


def report(model: str, runs: dict[str, list[dict]]) -> str:
    """The table of one model."""
    stock = runs["stock"]
    lines = []
    for name, results in runs.items():
        p = harness.paired(stock, results)
        own = name == "stock"
        lines.append(
            [
                name,
                harness.megabytes(p.peak_bytes),
                "" if own else f"{p.peak_ratio:.2f}x",
                "" if own else f"{p.peak_ratio_spread:.2f}",
                f"{p.step_seconds * 1000:.0f}",
                "" if own else f"{p.step_loss_percent:+.1f}",
                "" if own else f"{p.step_loss_spread:.0f}",
                "" if own else f"{p.step_cpu_loss_percent:+.1f}",
                f"{p.faults_per_step / 1000:.0f}k",
                f"{p.last_loss:.4f}",
            ]
        )
    first = stock[0]
    head = f"{model}: batch {first['batch']} {first['unit']}, {first['steps']} steps, {len(stock)} pairs, base {first['base_bytes'] / 1e6:.0f} MB"
    columns = ["row", "peak MB", "ratio", "spread", "step ms", "time %", "spread", "cpu %", "faults", "loss"]
    text = head + "\n" + harness.table(columns, lines)
    for name, results in runs.items():
        words = summary(results[-1])
        if words:
            text += f"\n  {name}: {words}"
    return text


def main() -> int:
    arguments = parse_arguments()
    names = list(MODELS) if arguments.model == "all" else [n.strip() for n in arguments.model.split(",") if n.strip()]
    for name in names:
        if name not in MODELS:
            raise Problem(f"--model: no model named {name!r}; there are {', '.join(MODELS)}")
    if arguments.repeat < 1 or arguments.steps < 3 or arguments.threads < 1:
        raise Problem("--repeat and --threads must be at least 1, --steps at least 3")
    if arguments.batch is not None and arguments.batch < 1:
        raise Problem("--batch must be at least 1")
    library = harness.find_library(arguments.lib)
    rows = harness.parse_rows(arguments.rows, harness.check_bits(arguments.bits))
    rows = harness.runnable_rows(rows, library)
    content = {"machine": harness.machine(), "arguments": harness.described(arguments), "models": {}}
    harness.write_json(arguments.json, content)  # before hours of work, not after
    started = time.monotonic()
    if arguments.what_if:
        content["what_if"] = {}
        for name in names:
            content["what_if"][name] = foretell(name, arguments, library)
            harness.write_json(arguments.json, content)
        print(report_foretold(content["what_if"], arguments.bits))
        return 0 if all(abs(one["error"]) <= FORETOLD_WITHIN for one in content["what_if"].values()) else 1
    for name in names:
        runs = measure(name, rows, arguments, library)
        print(report(name, runs), end="\n\n", flush=True)
        content["models"][name] = {
            "paired": {row: vars(harness.paired(runs["stock"], results)) for row, results in runs.items()},
            "runs": runs,
        }
        harness.write_json(arguments.json, content)
    print(f"{time.monotonic() - started:.0f} s in all; {content['machine']['cpu']}, {content['machine']['cores']} cores, "
          f"torch {content['machine']['versions']['torch']}, huge pages {content['machine']['transparent_hugepage']}")
    if arguments.repeat < 5:
        print("fewer than 5 pairs: figures for orientation only", file=sys.stderr)
    return 0


if __name__ == "__main__":
    harness.run_main(main)
