#!/usr/bin/env python3
"""The largest batch that trains within a memory cap, and its samples per second.

The cap is on the peak resident size (VmHWM) of the whole process, interpreter and libraries included. Every
try is a fresh process of a few steps, stopped as soon as it passes the cap, so the samples per second of a row are of few steps.
"""

from __future__ import annotations

import argparse
from typing import Callable

import harness
from harness import OverCap, Problem
from models import MODELS

DEFAULT_ROWS = "stock,off,checkpoint,pleat,pleat+checkpoint"


def largest_batch(peak_of: Callable[[int], int | None], cap: int, start: int, tolerance: float = 0.0) -> int:
    """The largest batch that fits, to within max(1, tolerance * batch); 0 if not even 1 does.

    `peak_of(batch)` is the peak in bytes, or None if it passed the cap. Peaks grow almost linearly in the
    batch, so the next try is half a tolerance below where the line through the two largest that fitted meets
    the cap, then a whole one above: two tries if the line is right. It is not followed into the last quarter
    of the bracket, and a try by it that leaves more than half the bracket is followed by the middle.
    """
    fitting: dict[int, int] = {}
    low, high = 0, None
    guess, misled = start, False
    while True:
        width = high - low if high is not None else None
        peak = peak_of(guess)
        if peak is None or peak > cap:
            high = guess
        else:
            low, fitting[guess] = guess, peak
        step = max(1, int(low * tolerance))
        if high is not None and high - low <= step:
            return low
        misled = width is not None and high is not None and not misled and high - low > width / 2
        if low == 0:
            guess = max(1, high // 2)
        elif misled:
            guess = (low + high) // 2
        else:
            guess = max(int(_meets_cap(fitting, cap, low) * (1 - tolerance / 2)), low + step)
            if high is not None:
                guess = max(low + 1, min(guess, high - max(step, (high - low) // 4)))


def _meets_cap(fitting: dict[int, int], cap: int, low: int) -> int:
    """Where the line through the two largest fitting batches meets the cap, at most eight times `low`."""
    points = sorted(fitting.items())[-2:]
    if len(points) < 2:
        return low * 2
    (b0, p0), (b1, p1) = points
    if p1 <= p0:
        return low * 2
    return min(low * 8, int(b1 + (cap - p1) * (b1 - b0) / (p1 - p0)))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="examples:\n"
        "  python tools/bench/max_batch.py --cap 4GiB\n"
        "  python tools/bench/max_batch.py --cap 3GiB --model resnet50 --rows stock,pleat --json batch.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cap", required=True, help="peak resident size of the process: 4GiB, 3500MB")
    parser.add_argument("--model", default="resnet50,bert,gcn", help="one or several with commas (default: resnet50,bert,gcn)")
    parser.add_argument("--rows", default=DEFAULT_ROWS, help=f"default: {DEFAULT_ROWS}")
    parser.add_argument("--bits", default="4")
    parser.add_argument("--steps", type=int, default=3, help="per try (default 3; at least 2)")
    parser.add_argument("--tolerance", type=float, default=0.05, help="of the answer, as a part of it (default 0.05)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lib", metavar="FILE", help="libpleat.so; default: build/lib/libpleat.so")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def search(model: str, row: harness.Row, cap: int, start: int, arguments: argparse.Namespace, library) -> dict:
    """One row of the table, with all tries."""
    tries: dict[int, dict | None] = {}

    def peak_of(batch: int) -> int | None:
        harness.progress(f"{model}, {row.name}: batch {batch}")
        options = ["--model", model, "--batch", str(batch), "--steps", str(arguments.steps)]
        try:
            tries[batch] = harness.train(row, options, library, arguments.threads, cap)
        except OverCap:
            tries[batch] = None
        return tries[batch]["peak_bytes"] if tries[batch] else None

    best = largest_batch(peak_of, cap, start, arguments.tolerance)
    harness.progress("")
    run = tries.get(best)
    return {
        "row": row.name,
        "batch": best,
        "peak_bytes": run["peak_bytes"] if run else None,
        "samples_per_second": best / run["median_step_seconds"] if run else 0.0,
        "tries": [{"batch": batch, "result": result} for batch, result in tries.items()],
    }


def report(model: str, cap: int, found: list[dict]) -> str:
    stock = next((f["batch"] for f in found if f["row"] == "stock"), 0)
    stock_speed = next((f["samples_per_second"] for f in found if f["row"] == "stock"), 0)
    lines = [
        [
            f["row"],
            str(f["batch"]) if f["batch"] else "none",
            f"{f['batch'] / stock:.2f}x" if stock else "",
            harness.megabytes(f["peak_bytes"]) if f["peak_bytes"] else "",
            f"{f['samples_per_second']:.1f}",
            f"{f['samples_per_second'] / stock_speed:.2f}" if stock_speed else "",
            str(len(f["tries"])),
        ]
        for f in found
    ]
    head = f"{model}: largest batch ({MODELS[model].unit}) within {cap / 1e6:.0f} MB"
    return head + "\n" + harness.table(["row", "batch", "gain", "peak MB", f"{MODELS[model].unit}/s", "speed", "tries"], lines)


def main() -> int:
    arguments = parse_arguments()
    cap = harness.parse_bytes(arguments.cap)
    machine = harness.machine()
    if machine["memory_bytes"] and cap > machine["memory_bytes"] * 0.8:
        raise Problem(f"--cap {arguments.cap} is more than 80 % of this machine's memory")
    if arguments.steps < 2 or not 0 <= arguments.tolerance < 1:
        raise Problem("--steps must be at least 2, --tolerance in [0, 1)")
    names = [n.strip() for n in arguments.model.split(",") if n.strip()]
    for name in names:
        if name not in MODELS:
            raise Problem(f"--model: no model named {name!r}; there are {', '.join(MODELS)}")
    library = harness.find_library(arguments.lib)
    rows = harness.parse_rows(arguments.rows, harness.check_bits(arguments.bits))
    rows = harness.runnable_rows(rows, library)
    content = {"machine": machine, "arguments": harness.described(arguments), "cap_bytes": cap, "models": {}}
    harness.write_json(arguments.json, content)
    for name in names:
        found: list[dict] = []
        for row in rows:
            # Every other row fits at least what stock does, or nearly.
            start = found[0]["batch"] if found and found[0]["batch"] else MODELS[name].batch
            found.append(search(name, row, cap, start, arguments, library))
            content["models"][name] = found
            harness.write_json(arguments.json, content)  # a row can take a quarter of an hour
        print(report(name, cap, found), end="\n\n", flush=True)
    return 0


if __name__ == "__main__":
    harness.run_main(main)
