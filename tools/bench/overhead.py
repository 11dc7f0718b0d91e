#!/usr/bin/env python3
"""What Pleat costs when it compresses nothing: PLEAT_CONF=bits:off against stock.

Step time of a model in pairs of fresh processes, and two tiny costs (bridge_bench.cpp): an allocation with its
free, and a saved tensor, each as the difference between Pleat and stock. What a saved tensor costs depends on
its kind; the mean is over all that a step of the model saves.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

import harness
from harness import Problem, Row
from models import MODELS
from pleat_counters import counter

OFF = Row("pleat bits:off", "bits:off")
STOCK = Row("stock")


def micro(row: Row, library) -> dict[str, float]:
    """The nanoseconds that a fresh run of pleat_bridge_bench prints."""
    program = library.parent.parent / "bin" / "pleat_bridge_bench"
    if not program.is_file():
        raise Problem(f"no {program}: {harness.REMEDY}")
    done = subprocess.run([program], env=harness.environment(row, library, threads=1), capture_output=True, text=True)
    if done.returncode != 0:
        raise Problem(f"{program.name} failed under {row.name}: " + " | ".join(done.stderr.strip().splitlines()[-3:]))
    return json.loads(done.stdout)


def micro_table(stock: list[dict], other: list[dict]) -> str:
    """Medians over runs, and the median of the paired differences."""
    lines = []
    for case in stock[0]:
        differences = [b[case] - a[case] for a, b in zip(stock, other)]
        medians = [statistics.median(run[case] for run in runs) for runs in (stock, other)]
        lines.append([case if case.startswith("saved") else f"{case} KiB", *(f"{m:.0f}" for m in medians),
                      f"{statistics.median(differences):+.0f}"])
    return harness.table(["ns", "stock", "bits:off", "difference"], lines)


def saved_tensors(result: dict) -> dict[str, float]:
    """How many tensors a step saves, by the case of bridge_bench.cpp that they are."""
    steps = counter(result, "records.backward_passes") or result["steps"]
    kinds = {reason: counts["tensors"] / steps for reason, counts in result["pleat"]["eligibility"].items()}
    records = sum(count for reason, count in kinds.items() if reason.startswith("eligible"))
    live = (counter(result, "records.live_at_unpack") or 0) / steps
    parameters = sum(kinds.get(reason, 0) for reason in ("leaf", "view_of_leaf", "cast_of_parameter"))
    return {"saved live": live, "saved gone": records - live, "saved leaf": parameters,
            "saved small": sum(kinds.values()) - records - parameters}


def mean_saved_ns(micros: dict[str, list[dict]], counts: dict[str, float]) -> float:
    """What a saved tensor costs over stock: the mean over those of a step."""
    costs = {case: statistics.median(off[case] - stock[case] for stock, off in zip(micros[STOCK.name], micros[OFF.name]))
             for case in counts}
    return sum(counts[case] * costs[case] for case in counts) / sum(counts.values())


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="examples:\n  python tools/bench/overhead.py\n  python tools/bench/overhead.py --model gcn,bert --repeat 7 --json off.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="chargpt", help="one or several with commas (default: chargpt)")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=5, metavar="R", help="pairs (default 5)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lib", metavar="FILE", help="libpleat.so; default: build/lib/libpleat.so")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    names = [n.strip() for n in arguments.model.split(",") if n.strip()]
    for name in names:
        if name not in MODELS:
            raise Problem(f"--model: no model named {name!r}; there are {', '.join(MODELS)}")
    if arguments.repeat < 1 or arguments.steps < 2:
        raise Problem("--repeat must be at least 1, --steps at least 2")
    library = harness.find_library(arguments.lib)
    if library is None:
        raise Problem(f"no libpleat.so: {harness.REMEDY}")
    content = {"machine": harness.machine(), "arguments": harness.described(arguments), "models": {}}
    harness.write_json(arguments.json, content)

    micros: dict[str, list[dict]] = {STOCK.name: [], OFF.name: []}
    for repeat in range(arguments.repeat):
        for row in harness.in_turn([STOCK, OFF], repeat):
            harness.progress(f"micro: repeat {repeat + 1} of {arguments.repeat}, {row.name}")
            micros[row.name].append(micro(row, library))
    harness.progress("")
    print(micro_table(micros[STOCK.name], micros[OFF.name]), end="\n\n", flush=True)
    content["micro"] = micros

    lines = []
    for name in names:
        runs: dict[str, list[dict]] = {STOCK.name: [], OFF.name: []}
        options = ["--model", name, "--steps", str(arguments.steps)]
        if arguments.batch:
            options += ["--batch", str(arguments.batch)]
        for repeat in range(arguments.repeat):
            harness.progress(f"{name}: repeat {repeat + 1} of {arguments.repeat}")
            pair = harness.in_turn([STOCK, OFF], repeat)
            for result in harness.train_side_by_side(pair, options, library, arguments.threads):
                runs[result["row"]].append(result)
        harness.progress("")
        p = harness.paired(runs[STOCK.name], runs[OFF.name])
        stock_ms = statistics.median(r["median_step_seconds"] for r in runs[STOCK.name]) * 1000
        saved = saved_tensors(runs[OFF.name][-1])
        saved_ns = mean_saved_ns(micros, saved)
        lines.append(
            [
                name,
                f"{stock_ms:.0f}",
                f"{p.step_seconds * 1000:.0f}",
                f"{p.step_loss_percent:+.1f}",
                f"{p.step_loss_spread:.0f}",
                f"{p.step_cpu_loss_percent:+.1f}",
                f"{p.peak_ratio:.2f}x",
                f"{sum(saved.values()):.0f}",
                f"{saved_ns:+.0f}",
            ]
        )
        content["models"][name] = {"paired": vars(p), "saved_tensors": saved, "ns_per_saved_tensor": saved_ns, "runs": runs}
        harness.write_json(arguments.json, content)
    columns = ["model", "stock ms", "off ms", "time %", "spread", "cpu %", "peak ratio", "saved", "ns each"]
    print(harness.table(columns, lines))
    return 0


if __name__ == "__main__":
    harness.run_main(main)
