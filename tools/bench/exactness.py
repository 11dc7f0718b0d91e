#!/usr/bin/env python3
"""Requested peaks at 4 bits, and what is exact for which reason.

A requested peak is the most bytes that torch had asked Pleat's allocator for at any time. It does not depend on the
machine's load, so one run a row is enough. Stock's is that of a run with bits:off and reuse_gradients:0. `exact`
counts the floating tensors that asked for a gradient, each saved storage once. `unproven` is the share of those bytes
that is exact for want of a proof: backward began before a proof came, memory was short, a pole or a function lies
behind, or the operator bears no noise. --before compares with another build's libpleat.so, --by-hand adds a run with
pleat.enable() and no preload library.
"""

from __future__ import annotations

import argparse

import harness
from harness import Problem, Row
from models import MODELS
from pleat_counters import counter

STOCK = Row("stock", "bits:off,reuse_gradients:0")
UNPROVEN = ("operator", "function", "pole", "function_behind", "no_proof", "no_room")
BORNE = "may_bear_noise"


def exact_bytes(result: dict) -> dict[str, int]:
    """Bytes of saved floating tensors by what was decided: `may_bear_noise`, or the reason for which they are exact."""
    exact = (result.get("pleat") or {}).get("exact")
    if exact is None:  # a build from before the counters
        return {}
    return {name: value["bytes"] for name, value in exact.items() if isinstance(value, dict)}


def unproven_share(by_reason: dict[str, int]) -> float | None:
    """The part of all bytes that is exact for want of a proof; None where nothing was counted."""
    saved = sum(by_reason.values())
    return sum(by_reason.get(why, 0) for why in UNPROVEN) / saved if saved else None


def requested_peak(result: dict) -> int:
    peak = counter(result, "bytes.requested.peak")
    if peak is None:
        raise Problem(f"row {result['row']!r}: Pleat was not active")
    return peak


def measure(name: str, arguments: argparse.Namespace, library, before) -> dict:
    """One model's entry of the JSON."""
    bits = arguments.bits
    rows = [(STOCK, library), (Row("pleat", f"bits:{bits}"), library)]
    if before is not None:
        rows.append((Row("before", f"bits:{bits}"), before))
    if name in arguments.by_hand:
        rows.append((Row("by_hand", f"bits:{bits}", by_hand=True), library))
    options = ["--model", name, "--steps", str(arguments.steps), "--seed", str(arguments.seed)]
    entry: dict = {"batch": arguments.batch or MODELS[name].batch, "rows": {}}
    if arguments.batch:
        options += ["--batch", str(arguments.batch)]
    for row, with_library in rows:
        harness.progress(f"{name}: {row.name}")
        result = harness.train(row, options, with_library, arguments.threads)
        by_reason = exact_bytes(result)
        entry["rows"][row.name] = {
            "conf": row.conf,
            "requested_peak": requested_peak(result),
            "saved_bytes": counter(result, "records.source_bytes"),
            "payload_bytes": counter(result, "records.payload_bytes"),
            "exact_bytes": by_reason,
            "unproven_share": unproven_share(by_reason),
            "poles_after_proof": counter(result, "exact.poles_after_proof"),
            "last_loss": result["losses"][-1],
        }
    harness.progress("")
    return entry


COLUMNS = ["model", "stock MB", "pleat MB", "ratio", "after/before", "by hand", "exact %", "unproven %", "reasons, % of saved bytes"]


def line(name: str, entry: dict) -> list[str]:
    rows = entry["rows"]
    stock, pleat = rows["stock"]["requested_peak"], rows["pleat"]["requested_peak"]
    by_reason = rows["pleat"]["exact_bytes"]
    saved = sum(by_reason.values())
    shares = {why: 100 * count / saved for why, count in by_reason.items() if why != BORNE} if saved else {}
    by_hand = rows.get("by_hand")
    return [
        name,
        f"{stock / 1e6:.1f}",
        f"{pleat / 1e6:.1f}",
        f"{stock / pleat:.2f}",
        f"{pleat / rows['before']['requested_peak']:.3f}" if "before" in rows else "",
        # How much of the ratio with the preload library is left.
        f"{pleat / by_hand['requested_peak']:.2f}" if by_hand else "",
        f"{sum(shares.values()):.1f}",
        f"{100 * (unproven_share(by_reason) or 0):.1f}",
        ", ".join(f"{why} {share:.1f}" for why, share in sorted(shares.items(), key=lambda one: -one[1]) if share >= 0.05),
    ]


def names_of(text: str, option: str) -> list[str]:
    names = list(MODELS) if text == "all" else [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in MODELS:
            raise Problem(f"{option}: no model named {name!r}; there are {', '.join(MODELS)}")
    return names


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="examples:\n"
        "  python tools/bench/exactness.py --model all --json FILE\n"
        "  python tools/bench/exactness.py --model chargpt,bert --before OLD/lib/libpleat.so --by-hand chargpt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, help="a model, several with commas, or all")
    parser.add_argument("--by-hand", default="", metavar="MODELS", help="of these also a run by hand")
    parser.add_argument("--batch", type=int, help="per step; default: the model's own")
    parser.add_argument("--steps", type=int, default=4, help="per run (default 4)")
    parser.add_argument("--bits", default="4", help="of the Pleat rows (default 4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lib", metavar="FILE", help="libpleat.so; default: build/lib/libpleat.so")
    parser.add_argument("--before", metavar="FILE", help="another build's libpleat.so to compare the peaks with")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    names = names_of(arguments.model, "--model")
    arguments.by_hand = names_of(arguments.by_hand, "--by-hand")
    if arguments.steps < 2 or arguments.threads < 1 or (arguments.batch is not None and arguments.batch < 1):
        raise Problem("--steps must be at least 2, --threads and --batch at least 1")
    arguments.bits = harness.check_bits(arguments.bits)
    library = harness.find_library(arguments.lib)
    if library is None:
        raise Problem(f"no libpleat.so: {harness.REMEDY}")
    before = harness.find_library(arguments.before) if arguments.before else None
    described = harness.described(arguments)
    described.pop("before")
    content = {"machine": harness.machine(), "arguments": described, "models": {}}
    harness.write_json(arguments.json, content)
    lines = []
    for name in names:
        entry = measure(name, arguments, library, before)
        content["models"][name] = entry
        harness.write_json(arguments.json, content)
        lines.append(line(name, entry))
    print(harness.table(COLUMNS, lines))
    return 0


if __name__ == "__main__":
    harness.run_main(main)
