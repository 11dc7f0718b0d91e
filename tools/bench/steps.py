#!/usr/bin/env python3
"""Long runs: does memory grow, do runs repeat, is lossless exact, does training still learn.

  memory    resident size every 20 steps under Pleat: no growth after step 20
  repeat    two runs of one seed under Pleat: identical losses and weights
  lossless  bits:lossless against stock: identical losses and weights
  loss      mean loss of the last 20 steps, stock against Pleat, paired by seed

Each check prints one line with its figures and ok or FAILED; exit code 1 if any failed.
"""

from __future__ import annotations

import argparse
import math
import statistics

import harness
from harness import Problem, Row
from models import MODELS

CHECKS = ("memory", "repeat", "lossless", "loss")
STOCK = Row("stock")
SETTLED_STEP = 20  # the first steps allocate optimizer state and find the working set


def memory_growth(samples: list[list[int]]) -> dict:
    """Growth of the resident size over [step, bytes] samples from SETTLED_STEP on: the least-squares slope,
    and the median of the last quarter minus that of the first. It fails if both say that memory grows by
    more than 1 % over the run (and 4 MB, below which allocators and the interpreter jitter)."""
    points = [(step, size) for step, size in samples if step >= SETTLED_STEP]
    if len(points) < 4:
        raise Problem(f"the memory check needs at least {SETTLED_STEP * 4} steps")
    quarter = max(1, len(points) // 4)
    first = statistics.median(size for _, size in points[:quarter])
    last = statistics.median(size for _, size in points[-quarter:])
    slope = harness.slope(points)
    allowed = max(4e6, 0.01 * first)
    over_run = slope * (points[-1][0] - points[0][0])
    return {
        "bytes_per_step": slope,
        "first_quarter_bytes": first,
        "last_quarter_bytes": last,
        "ok": not (over_run > allowed and last - first > allowed),
    }


def same(one: dict, other: dict) -> tuple[bool, int | None]:
    """Whether losses and final weights are bit-identical, and the first step whose losses differ."""
    differs = next((i + 1 for i, (a, b) in enumerate(zip(one["losses"], other["losses"])) if a != b), None)
    return differs is None and one["weights_sha256"] == other["weights_sha256"], differs


def last_losses(runs: list[dict], count: int = 20) -> list[float]:
    return [statistics.fmean(run["losses"][-count:]) for run in runs]


def loss_verdict(stock: list[float], pleat: list[float]) -> dict:
    """Pairs of equal seed, at least two. It fails if the mean of the differences is beyond 1 % of stock's loss and
    beyond twice its own standard error."""
    differences = [other - one for one, other in zip(stock, pleat, strict=True)]
    difference = statistics.fmean(differences)
    spread = math.sqrt(math.fsum((one - difference) ** 2 for one in differences) / (len(differences) - 1))
    error = spread / math.sqrt(len(differences))
    mean = statistics.fmean(stock)
    return {
        "stock": stock,
        "pleat": pleat,
        "difference": difference,
        "difference_percent": 100 * difference / mean,
        "standard_error": error,
        "stock_spread": max(stock) - min(stock),
        # A loss that is not finite makes a comparison false.
        "ok": abs(difference) <= 0.01 * abs(mean) or abs(difference) <= 2 * error < math.inf,
    }


class Runner:
    """Starts the runs of this program and keeps their results for the JSON."""

    def __init__(self, arguments: argparse.Namespace, library):
        self.arguments, self.library = arguments, library
        self.runs: list[dict] = []

    def __call__(self, row: Row, steps: int, seed: int = 0, rss_every: int = 0) -> dict:
        harness.progress(f"{row.name}, seed {seed}: {steps} steps")
        options = ["--model", self.arguments.model, "--steps", str(steps), "--seed", str(seed), "--digest"]
        if rss_every:
            options += ["--rss-every", str(rss_every)]
        if self.arguments.batch:
            options += ["--batch", str(self.arguments.batch)]
        self.runs.append(harness.train(row, options, self.library, self.arguments.threads))
        harness.progress("")
        return self.runs[-1]


def check_memory(run: Runner, pleat: Row, arguments) -> tuple[bool, str]:
    result = memory_growth(run(pleat, arguments.steps, rss_every=20)["rss_bytes"])
    return result["ok"], (
        f"{result['bytes_per_step']:+.0f} bytes a step after step {SETTLED_STEP} of {arguments.steps}, "
        f"{result['first_quarter_bytes'] / 1e6:.0f} MB in the first quarter, {result['last_quarter_bytes'] / 1e6:.0f} MB in the last"
    )


def check_repeat(run: Runner, pleat: Row, arguments) -> tuple[bool, str]:
    ok, step = same(run(pleat, arguments.exact_steps), run(pleat, arguments.exact_steps))
    return ok, f"{pleat.name}, {arguments.exact_steps} steps, " + _difference(ok, step)


def check_lossless(run: Runner, pleat: Row, arguments) -> tuple[bool, str]:
    stock = run(STOCK, arguments.exact_steps)
    ok, step = same(stock, run(Row("pleat lossless", "bits:lossless"), arguments.exact_steps))
    words = f"{arguments.exact_steps} steps, " + _difference(ok, step)
    if not ok and not same(stock, run(STOCK, arguments.exact_steps))[0]:
        words += " (but two runs of stock differ too: this model does not repeat by itself)"
    return ok, words


def check_loss(run: Runner, pleat: Row, arguments) -> tuple[bool, str]:
    stock, other = [], []
    for seed in range(arguments.seeds):
        stock.append(run(STOCK, arguments.loss_steps, seed))
        other.append(run(pleat, arguments.loss_steps, seed))
    v = loss_verdict(last_losses(stock), last_losses(other))
    return v["ok"], (
        f"after {arguments.loss_steps} steps stock {' '.join(f'{x:.5g}' for x in v['stock'])}, "
        f"{pleat.name} {' '.join(f'{x:.5g}' for x in v['pleat'])}: {v['difference_percent']:+.2f} %, "
        f"mean difference {v['difference']:+.2g} with a standard error of {v['standard_error']:.2g} "
        f"(stock's seeds spread {v['stock_spread']:.2g})"
    )


def _difference(ok: bool, step: int | None) -> str:
    if ok:
        return "losses and weights identical"
    return f"losses differ from step {step}" if step else "losses identical, weights differ"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="examples:\n"
        "  python tools/bench/steps.py --steps 1000\n"
        "  python tools/bench/steps.py --checks repeat,lossless --model resnet50 --exact-steps 5",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="chargpt", choices=MODELS, metavar="NAME")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--checks", default=",".join(CHECKS), help=f"default: {','.join(CHECKS)}")
    parser.add_argument("--steps", type=int, default=1000, help="of the memory check (default 1000)")
    parser.add_argument("--exact-steps", type=int, default=50, help="of repeat and lossless (default 50)")
    parser.add_argument("--loss-steps", type=int, default=200, help="of the loss check (default 200)")
    parser.add_argument("--seeds", type=int, default=3, help="of the loss check (default 3, at least 2)")
    parser.add_argument("--bits", default="4")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lib", metavar="FILE", help="libpleat.so; default: build/lib/libpleat.so")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    bits = harness.check_bits(arguments.bits)
    checks = [c.strip() for c in arguments.checks.split(",") if c.strip()]
    for check in checks:
        if check not in CHECKS:
            raise Problem(f"--checks: no check named {check!r}; there are {', '.join(CHECKS)}")
    if "memory" in checks and arguments.steps < SETTLED_STEP * 4:
        raise Problem(f"--steps must be at least {SETTLED_STEP * 4}")
    if arguments.exact_steps < 1 or arguments.loss_steps < 1:
        raise Problem("--exact-steps and --loss-steps must be at least 1")
    if arguments.seeds < 2:
        raise Problem("--seeds must be at least 2")
    library = harness.find_library(arguments.lib)
    if library is None:
        raise Problem(f"no libpleat.so: {harness.REMEDY}")
    pleat = Row(f"pleat bits:{bits}", f"bits:{bits}")
    run = Runner(arguments, library)
    content = {"machine": harness.machine(), "arguments": harness.described(arguments), "checks": {}, "runs": run.runs}
    harness.write_json(arguments.json, content)
    all_ok = True
    for check in checks:
        ok, words = globals()[f"check_{check}"](run, pleat, arguments)
        print(f"{check:9s} {'ok' if ok else 'FAILED'}: {words}", flush=True)
        content["checks"][check] = {"ok": ok, "words": words}
        harness.write_json(arguments.json, content)
        all_ok = all_ok and ok
    return 0 if all_ok else 1


if __name__ == "__main__":
    harness.run_main(main)
