#!/usr/bin/env python3
"""What bits for each tensor cost: time, memory, whether a budget is kept, and whether anybody sees a measurement.

  time       a burst of extra passes and its check, in ordinary steps and as a share of 5,000; encode and decode of a
             step with a profile, over those with 4 bits for all
  whole      the same share, by a run of 5,000 steps
  memory     requested peak of a burst's step, over that of the same step of a run without
  budget     peaks of segments beside budgets at a fifth, a half and four fifths of the way from the peak at 2 bits to
             that at 8: a run that measures itself, and runs that begin with its profile
  stable     rank correlation of what steps 10 and 1000 have measured; and noise by the later one, over that of the best
             widths: of widths by the first, by the mean of both, and of one width for all
  invisible  losses, gradients, weights and torch's random state of 30 steps without loss: two bursts against none

Each run is a process of its own. Codec times are of pairs that take turns step by step, with one thread each; a figure is
the median over pairs. Seconds of a burst are Pleat's own counter; `CPU` is time of the process above an ordinary step's.
With --quick a hard bar that is missed makes the exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator

import harness
from harness import Problem
from models import MODELS
from sensitivity_cost_parts.rows import ROWS, Found, Plan
from sensitivity_cost_parts.runs import Case, Runs
from sensitivity_parts import profiles

CASES = {
    "time": [Case("chargpt"), Case("resnet50")],
    "whole": [Case("digits", 64)],
    "memory": [Case("chargpt"), Case("resnet50")],
    "budget": [Case("chargpt"), Case("bert", 8), Case("resnet50", 4)],
    "stable": [Case("chargpt", 8), Case("digits", 64), Case("unet", 1)],
    "invisible": [Case("chargpt", 16), Case("resnet50", 2), Case("digits")],
}
QUICK_CASES = {row: [Case("chargpt", 3)] for row in CASES if row != "whole"}
QUICK = Plan(
    pairs=1, burst_steps=12, codec_steps=6, budget_steps=14, profiled_steps=5, parts=(0.5,), stable_steps=14,
    stable_refresh=4, exact_steps=15, exact_refresh=4, stock=False,
)  # fmt: skip


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="examples:\n"
        "  python tools/bench/sensitivity_cost.py --json FILE\n"
        "  python tools/bench/sensitivity_cost.py --rows memory,budget --model chargpt --batch 16\n"
        "  python tools/bench/sensitivity_cost.py --rows stable --model digits --keep FOLDER\n"
        "  python tools/bench/sensitivity_cost.py --quick",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rows", help=f"one or more of {', '.join(ROWS)} (default: all; quick: all but whole)")
    add("--model", help="one or several with commas, for all rows (default: a row's own)")
    add("--batch", type=int, help="per step; default: a row's own for its models, else the model's")
    add("--pairs", type=int, metavar="N", help="of processes, for the codec's time (default 3; quick: 1)")
    add("--quick", action="store_true", help="a minute of CPU time in all; exit code 1 if a hard bar is missed")
    add("--keep", metavar="FOLDER", help="for the profiles: `pleat profile show FILE --html OUT` draws them")
    add("--threads", type=int, default=2)
    add("--seed", type=int, default=0)
    add("--lib", metavar="FILE", help="libpleat.so; default: build/lib/libpleat.so")
    add("--json", metavar="FILE", help="all figures, the machine, the date")
    return parser.parse_args()


def names_of(text: str, known: object, what: str, option: str) -> list[str]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name not in known:
            raise Problem(f"{option}: no {what} named {name!r}; there are {', '.join(known)}")
    if not names:
        raise Problem(f"{option}: no {what} is named")
    return list(dict.fromkeys(names))


def cases_of(arguments: argparse.Namespace) -> dict[str, list[Case]]:
    """What is to be measured, row by row."""
    own = QUICK_CASES if arguments.quick else CASES
    rows = names_of(arguments.rows, ROWS, "row", "--rows") if arguments.rows is not None else list(own)
    names = names_of(arguments.model, MODELS, "model", "--model") if arguments.model is not None else None
    found = {}
    for row in rows:
        cases = own.get(row, CASES[row])
        if names is not None:
            batches = {case.model: case.batch for case in cases}
            cases = [Case(name, batches.get(name)) for name in names]
        found[row] = [Case(case.model, arguments.batch or case.batch) for case in cases]
    return found


def plan_of(arguments: argparse.Namespace) -> Plan:
    plan = QUICK if arguments.quick else Plan()
    return plan if arguments.pairs is None else dataclasses.replace(plan, pairs=arguments.pairs)


@contextlib.contextmanager
def folder_of(arguments: argparse.Namespace) -> Iterator[pathlib.Path]:
    """Where profiles lie."""
    if arguments.keep is None:
        with tempfile.TemporaryDirectory() as folder:
            yield pathlib.Path(folder)
        return
    folder = pathlib.Path(arguments.keep).resolve()
    if not folder.is_dir():
        raise Problem(f"--keep {arguments.keep}: no such folder")
    if any(folder.iterdir()):  # runs would go on with what others have found
        raise Problem(f"--keep {arguments.keep}: not empty")
    yield folder


def number(value: float) -> str:
    return f"{value:.4g}" if value < 10000 else f"{value:.0f}"


def lines(case: Case, found: Found) -> list[list[str]]:
    cells = []
    for one in found.rows:
        low, high = number(min(one.values)), number(max(one.values))
        shown = low if low == high else f"{low} .. {high}"
        cells.append([one.measure, str(case), str(one.bar), shown, one.verdict])
    return cells


def described(found: Found) -> dict:
    rows = [
        {"measure": r.measure, "bar": str(r.bar), "hard": r.bar.hard, "values": r.values, "verdict": r.verdict}
        for r in found.rows
    ]
    return {"rows": rows, **found.runs}


def main() -> int:
    arguments = parse_arguments()
    plan, rows = plan_of(arguments), cases_of(arguments)
    if arguments.threads < 1 or any(n is not None and n < 1 for n in (arguments.batch, arguments.pairs)):
        raise Problem("--threads, --batch and --pairs must be at least 1")
    library = harness.find_library(arguments.lib)
    if library is None:
        raise Problem(f"no libpleat.so: {harness.REMEDY}")
    profiles.program()
    arguments_told = {name: value for name, value in harness.described(arguments).items() if name != "keep"}
    content: dict = {"machine": harness.machine(), "arguments": arguments_told, "rows": {}}
    harness.write_json(arguments.json, content)  # before the work, not after
    missed, started = [], time.monotonic()
    with folder_of(arguments) as folder:
        runs = Runs(library, folder, arguments.threads, arguments.seed)
        for row, cases in rows.items():
            table = []
            for case in cases:
                found = ROWS[row](case, plan, runs)
                table += lines(case, found)
                content["rows"].setdefault(row, {})[case.model] = described(found)
                harness.write_json(arguments.json, content)
                missed += [(f"{row}, {case}: {r.measure}", r.bar.hard) for r in found.rows if r.verdict == "MISSED"]
            print(harness.table([row, "model", "bar", "found", "verdict"], table), end="\n\n", flush=True)
    machine = content["machine"]
    print(f"{time.monotonic() - started:.0f} s in all; {machine['cpu']}, torch {machine['versions']['torch']}")
    if missed:
        print("missed: " + "; ".join(what for what, _ in missed), file=sys.stderr)
    return 1 if arguments.quick and any(hard for _, hard in missed) else 0


if __name__ == "__main__":
    harness.run_main(main)
