#!/usr/bin/env python3
"""What measured bits are worth: gradient noise of uniform and of adaptive widths, and how good the measurement is.

A small model is trained with exact saved tensors. Then, on one fixed batch for each seed, Pleat measures the
sensitivity of each saved tensor in bursts of extra backward passes, and repeated passes over that batch show what noise
the gradient really has: |g - g*|^2 over |g*|^2, in the mean over draws, where g* is exact. Noise, bytes and bits of
adaptive widths are those that a later run with the first burst's profile has. `regret` is the noise of the assigned
widths over that of the best assignment for as many bytes, both by the truth: the mean of several bursts with one pass
for each tensor. `unit_...` compares single tensors, which the codec alone disturbs, with what the profile says of them.

Every figure comes from processes of their own. A bar holds if it does for every seed. With --quick the models are
smaller, the bars looser, and a bar that is missed makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import harness
from harness import BENCH, Problem
from sensitivity_parts import profiles
from sensitivity_parts.bars import Row, rows_of

MODELS = ("vgg11_bn", "gpt", "gpt_eager", "bert", "gcn")
QUICK_MODELS = ("vgg11_bn", "gpt")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="examples:\n"
        "  python tools/bench/sensitivity.py --model vgg11_bn --seeds 10 --set all --json FILE\n"
        "  python tools/bench/sensitivity.py --quick",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", help=f"one or more of {', '.join(MODELS)}, or all; with --quick: {', '.join(QUICK_MODELS)}")
    add("--seeds", type=int, metavar="N", help="batches to measure on (default 5; quick: 1)")
    add("--draws", type=int, metavar="R", help="passes that a noise is the mean of (default 10; quick: 6)")
    add("--bias-draws", type=int, metavar="R", help="the same at 4 bits on the first seed (default 100; quick: none)")
    add("--bursts", type=int, metavar="B", help="on each batch, for the regret (default 4; quick: 2)")
    add("--truths", type=int, metavar="T", help="bursts of one pass for each tensor (default 3; quick: 1)")
    add("--set", choices=("default", "all"), default="default", help="all: every saved float (rule:assumed)")
    add("--measured-at", default="4", metavar="BITS", help="bits in training while bursts measure (default 4)")
    add("--quick", action="store_true", help="two minutes in all; exit code 1 if a hard bar is missed")
    add("--threads", type=int, default=1)
    add("--lib", metavar="FILE", help="libpleat.so; default: build/lib/libpleat.so")
    add("--json", metavar="FILE", help="all figures, the machine, the date")
    arguments = parser.parse_args()
    quick = arguments.quick
    for name, usual, if_quick in (
        ("seeds", 5, 1), ("draws", 10, 6), ("bias_draws", 100, 0), ("bursts", 4, 2), ("truths", 3, 1)
    ):  # fmt: skip
        if getattr(arguments, name) is None:
            setattr(arguments, name, if_quick if quick else usual)
    if arguments.model is None and not quick:
        parser.error("--model is missing")
    return arguments


def models_of(arguments: argparse.Namespace) -> list[str]:
    if arguments.model in (None, "all"):
        return list(QUICK_MODELS if arguments.quick else MODELS)
    names = [part.strip() for part in arguments.model.split(",") if part.strip()]
    for name in names:
        if name not in MODELS:
            raise Problem(f"--model: no model named {name!r}; there are {', '.join(MODELS)}")
    return names


class Workers:
    """Starts sensitivity_parts/worker.py for one model, each task in a fresh process under Pleat."""

    def __init__(self, model: str, arguments: argparse.Namespace, library: pathlib.Path, folder: pathlib.Path) -> None:
        self._row = harness.Row(model, "bits:lossless,min_bytes:0")
        self._environment = harness.environment(self._row, library, arguments.threads)
        self._environment.update(harness.QUIET)
        if arguments.set == "all":
            self._environment["PLEAT_TEST_CONF"] = "rule:assumed"
        self._arguments, self._folder = arguments, folder

    def run(self, task: str, seed: int = 0) -> dict:
        harness.progress(f"{self._row.name}: {task}, seed {seed}")
        a, out = self._arguments, self._folder / f"{task}{seed}.json"
        command = [sys.executable, "-m", "sensitivity_parts.worker", "--task", task, "--model", self._row.name]
        numbers = {
            "seed": seed, "draws": a.draws, "bias-draws": a.bias_draws if seed == 0 else 0, "bursts": a.bursts,
            "truths": a.truths, "threads": a.threads, "measured-at": a.measured_at,
        }  # fmt: skip
        for name, value in numbers.items():
            command += [f"--{name}", str(value)]
        command += ["--folder", str(self._folder), "--out", str(out)] + (["--quick"] if a.quick else [])
        done = subprocess.run(command, cwd=BENCH, env=self._environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise Problem(f"{self._row.name}: {task} failed: " + " | ".join(done.stderr.strip().splitlines()[-5:]))
        result = json.loads(out.read_text())
        result["said"] = [line for line in done.stderr.splitlines() if line.startswith("pleat")]
        return result


def measure(model: str, arguments: argparse.Namespace, library: pathlib.Path) -> dict:
    """All that the workers find about one model."""
    with tempfile.TemporaryDirectory() as folder:
        workers = Workers(model, arguments, library, pathlib.Path(folder))
        found: dict = {"model": model, "train": workers.run("train"), "measured": [], "checked": []}
        for seed in range(arguments.seeds):
            found["measured"].append(workers.run("measure", seed))
            found["checked"].append(workers.run("check", seed))
    harness.progress("")
    return found


def number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def line(row: Row) -> list[str]:
    found = number(row.values[0])
    low, high = min(row.values), max(row.values)
    if len(row.values) > 1 and number(low) != number(high):
        found = f"{number(low)} .. {number(high)}"
    return [row.measure, str(row.bar), found, row.verdict]


def report(found: dict, rows: list[Row], arguments: argparse.Namespace) -> str:
    train = found["train"]
    head = (
        f"{found['model']}, {arguments.set} set: {train['parameters']:,} parameters, {train['steps']} steps to a loss"
        f" of {train['loss']:.3f}, {arguments.seeds} seeds of {arguments.draws} draws, {arguments.bursts} bursts each"
    )
    text = head + "\n" + harness.table(["measure", "bar", "found", "verdict"], [line(row) for row in rows])
    said = sorted({one for part in (train, *found["measured"], *found["checked"]) for one in part["said"]})
    return text + "".join(f"\n  {one if len(one) <= 118 else one[:115] + '...'}" for one in said)


def without_profiles(found: dict) -> dict:
    """For the JSON: of the bursts only what units, noises and widths were found, not each row of each profile again."""
    for seed in found["measured"]:
        first = seed["truth"][0]["profile"]
        seed["units"] = [{k: v for k, v in unit.items() if k != "measurements"} for unit in first["units"]]
        for bursts in (seed["truth"], *seed["bursts"].values()):
            for burst in bursts:
                burst["noise_at_4_bits"] = profiles.noises(burst.pop("profile"))
    return found


def main() -> int:
    arguments = parse_arguments()
    names = models_of(arguments)
    if min(arguments.seeds, arguments.truths, arguments.threads) < 1 or arguments.draws < 2:
        raise Problem("--seeds, --truths and --threads must be at least 1, --draws at least 2")
    most = 5 if arguments.measured_at == "lossless" else 4  # with a check each; one process has no more passes free
    if not 1 <= arguments.bursts <= most:
        raise Problem(f"--bursts must be from 1 to {most}")
    library = harness.find_library(arguments.lib)
    if library is None:
        raise Problem(f"no libpleat.so: {harness.REMEDY}")
    profiles.program()
    content = {"machine": harness.machine(), "arguments": harness.described(arguments), "models": {}}
    harness.write_json(arguments.json, content)  # before hours of work, not after
    missed = []
    started = time.monotonic()
    for name in names:
        found = measure(name, arguments, library)
        rows = rows_of(found, arguments.set == "all", arguments.quick)
        print(report(found, rows.rows, arguments), end="\n\n", flush=True)
        content["models"][name] = {
            "rows": [
                {"measure": r.measure, "bar": str(r.bar), "hard": r.bar.hard, "values": r.values, "verdict": r.verdict}
                for r in rows.rows
            ],
            "regrets": rows.regrets,
            **without_profiles(found),
        }
        harness.write_json(arguments.json, content)
        missed += [f"{name}: {r.measure}" for r in rows.rows if r.bar.hard and r.verdict == "MISSED"]
    machine = content["machine"]
    print(f"{time.monotonic() - started:.0f} s in all; {machine['cpu']}, torch {machine['versions']['torch']}")
    if missed:
        print("hard bars missed: " + ", ".join(missed), file=sys.stderr)
    return 1 if missed and arguments.quick else 0


if __name__ == "__main__":
    harness.run_main(main)
