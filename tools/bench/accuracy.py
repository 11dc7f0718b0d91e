#!/usr/bin/env python3
"""Test accuracy and test loss with small trainings on real data, stock against Pleat, paired by seed.

Sides are stock, one uniform width of 4, 3 and 2 bits, and bits by sensitivity (measured in step 10, assigned from step
11 on) of as many in the mean. Every training is a process of its own. Those of one seed have the same initial weights, batches
and dropout, and run the same code. A difference is Pleat's figure minus stock's; brackets hold the two-sided 95 % interval
of Student's t over the seeds. The bar is for adaptive 4 bits: the interval contains 0, or lies within +-0.5 points of
accuracy and +-0.5 % of the loss.

`lossy` is the share of saved floating bytes, parameters apart, that were lossy or masks. A row counts from 90 % on. A row
fails if Pleat was not active, or if sensitivity was not measured. `paid` is what an element of a noisy payload took in the
mean over the whole run, in bits, metadata and floors counted. `bits` and `noise` are those that Pleat says are in force at
the end, noise as a part of what one uniform width would have. `units` were measured; of these a check has distrusted some.

Exit code 1 if a row fails or a bar is missed; with --quick, if a row fails or is off by far.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import harness
from accuracy_parts import figures
from harness import BENCH, Problem


@dataclass(frozen=True)
class Goal:
    """What stock has to reach, or its training shows nothing. `entropy`: a loss of at most that part of the entropy of
    single characters. `far`: points of accuracy and percent of the loss that two seeds are enough to see, about five
    times what a pair of seeds differs by."""

    far: tuple[float, float]
    accuracy: float = 0.0
    entropy: float = 0.0

    def missed(self, runs: list[dict]) -> str | None:
        accuracy = statistics.fmean(run["accuracy"] for run in runs)
        loss = statistics.fmean(run["test_loss"] for run in runs)
        if not accuracy >= self.accuracy:
            return f"stock has {accuracy:.2f} % instead of {self.accuracy:g} %"
        if self.entropy and not loss <= self.entropy * runs[0]["unigram_entropy"]:
            return f"stock's loss is {loss:.3f}, single characters have an entropy of {runs[0]['unigram_entropy']:.3f}"
        return None


TASKS = {
    "digits_cnn": Goal((1.5, 20), accuracy=98),
    "digits_mlp": Goal((1, 6), accuracy=96),
    "char_gpt": Goal((1, 2), entropy=0.8),
    "gcn": Goal((1.5, 10), accuracy=93),
    "gat": Goal((1.5, 10), accuracy=93),
}
QUICK_TASKS = ("digits_mlp", "gat")


@dataclass(frozen=True)
class Side:
    name: str
    conf: str | None = None
    adaptive: bool = False
    has_bar: bool = False


STOCK = Side("stock")
SIDES = (
    Side("uniform 4", "bits:4"),
    Side("adaptive 4", "bits:4,sensitivity:on", adaptive=True, has_bar=True),
    Side("uniform 3", "bits:3"),
    Side("adaptive 3", "bits:3,sensitivity:on", adaptive=True),
    Side("uniform 2", "bits:2"),
    Side("adaptive 2", "bits:2,sensitivity:on", adaptive=True),
)
QUICK_SIDES = tuple(side for side in SIDES if side.has_bar)
SMALL = "min_bytes:1KiB"  # the tensors of these models are small


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="examples:\n"
        "  python tools/bench/accuracy.py --json FILE\n"
        "  python tools/bench/accuracy.py --tasks gat,gcn --seeds 4\n"
        "  python tools/bench/accuracy.py --quick",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--tasks", help=f"with commas, of {', '.join(TASKS)}; default: all, with --quick {', '.join(QUICK_TASKS)}")
    add("--seeds", type=int, metavar="N", help="of each task, at least 2 (default 10; quick: 2)")
    add("--quick", action="store_true", help="a minute in all: stock and adaptive 4")
    add("--jobs", type=int, default=1, metavar="N", help="trainings at a time (default 1)")
    add("--threads", type=int, default=1, help="of each training (default 1)")
    add("--lib", metavar="FILE", help="libpleat.so; default: build/lib/libpleat.so")
    add("--json", metavar="FILE", help="all figures, the machine, the date")
    arguments = parser.parse_args()
    if arguments.seeds is None:
        arguments.seeds = 2 if arguments.quick else 10
    return arguments


def tasks_of(arguments: argparse.Namespace) -> list[str]:
    if arguments.tasks is None:
        return list(QUICK_TASKS if arguments.quick else TASKS)
    names = list(dict.fromkeys(part.strip() for part in arguments.tasks.split(",") if part.strip()))
    for name in names:
        if name not in TASKS:
            raise Problem(f"--tasks: no task named {name!r}; there are {', '.join(TASKS)}")
    if not names:
        raise Problem(f"--tasks names none; there are {', '.join(TASKS)}")
    return names


# --- runs ---------------------------------------------------------------------------------------------


def run(task: str, side: Side, seed: int, arguments: argparse.Namespace, library: pathlib.Path) -> dict:
    """One training in a fresh process; what of its result is kept."""
    harness.progress(f"{task}: {side.name}, seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        out, profile = pathlib.Path(folder) / "result.json", pathlib.Path(folder) / "profile"
        conf = side.conf and f"{side.conf},{SMALL}" + (f",profile:{profile}" if side.adaptive else "")
        environment = harness.environment(harness.Row(side.name, conf), library, arguments.threads)
        environment.update(harness.QUIET)
        command = [sys.executable, "-m", "accuracy_parts.worker", "--task", task, "--seed", str(seed)]
        command += ["--threads", str(arguments.threads), "--out", str(out)]
        done = subprocess.run(command, cwd=BENCH, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            said = " | ".join(done.stderr.strip().splitlines()[-5:])
            raise Problem(f"{task}, {side.name}, seed {seed} failed with code {done.returncode}: {said}")
        result = json.loads(out.read_text())
        if side.conf is None and result["pleat"] is not None:
            raise Problem(f"{task}, stock, seed {seed}: Pleat was in the process")
        if profile.is_file():
            content = json.loads(profile.read_text())
            result["exact"], result["widths"] = exact_floats(content), widths(content)
    result["said"] = [line for line in done.stderr.splitlines() if line.startswith("pleat")]
    return result


def exact_floats(profile: dict) -> list[dict]:
    """Units of floats that came back as they were and took more than a mask would, by their reasons, most bytes first."""
    found = [
        {"reason": unit["fixed"], "reader": unit.get("reader"), "shape": unit.get("shape", []), "bytes": unit["bytes"]}
        for unit in profile["units"]
        if unit.get("fixed") and unit["type"].startswith(("float", "bfloat")) and 16 * unit["payload_bytes"] > unit["bytes"]
    ]
    return sorted(found, key=lambda one: -one["bytes"])


def widths(profile: dict) -> dict[str, int]:
    """How many of the units that were measured have each width at the end; 0: exact."""
    counted = collections.Counter(unit["width"] for unit in profile["units"] if unit.get("measurements"))
    return {str(width): counted[width] for width in sorted(counted)}


def measure(task: str, sides: tuple[Side, ...], arguments: argparse.Namespace, library: pathlib.Path) -> dict[str, list[dict]]:
    """The runs of each side, in the order of seeds."""
    wanted = [(side, seed) for seed in range(arguments.seeds) for side in (STOCK, *sides)]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        running = [pool.submit(run, task, side, seed, arguments, library) for side, seed in wanted]
        try:
            results = [one.result() for one in running]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    harness.progress("")
    by_side: dict[str, list[dict]] = {side.name: [] for side in (STOCK, *sides)}
    for (side, _), result in zip(wanted, results):
        by_side[side.name].append(result)
    return by_side


# --- words --------------------------------------------------------------------------------------------


COLUMNS = ["side", "accuracy, points", "test loss, %", "lossy, %", "paid", "bits", "noise", "units", "distrusted", "verdict"]


def signed(found: figures.Interval, digits: int) -> str:
    return f"{found.mean:+.{digits}f} [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"


def spread(values: list[float], form: str) -> str:
    texts = [f"{value:{form}}" for value in (min(values), max(values))]
    return texts[0] if texts[0] == texts[1] else " .. ".join(texts)


def line(row: figures.Row, runs: list[dict], adaptive: bool) -> list[str]:
    found = [one["pleat"]["sensitivity"] for one in runs if one["pleat"] is not None] if adaptive else []
    cells = [""] * 4
    if found:
        cells = [
            spread([one["bits"] for one in found], ".2f"),
            spread([one["noise"] / one["uniform_noise"] if one["uniform_noise"] > 0 else 1.0 for one in found], ".2g"),
            spread([one["measured"] + one["distrusted"] for one in found], "d"),
            spread([one["distrusted"] for one in found], "d"),
        ]
    paid = [figures.bits_paid(one) for one in runs if "codec" in (one["pleat"] or {})]
    return [
        row.side, signed(row.accuracy, 2), signed(row.loss, 2), f"{100 * row.share:.1f}",
        spread(paid, ".2f") if paid else "", *cells, row.verdict,
    ]  # fmt: skip


def exact_words(runs: list[dict], saved: int) -> str:
    """The units that are exact and large enough to be seen, as parts of the saved floating bytes."""
    if not runs or not runs[0].get("exact"):
        return ""
    words = [
        f"{100 * one['bytes'] / saved:.1f} % {one['reason']} ({one['reader']} {one['shape']})"
        for one in runs[0]["exact"]
        if one["bytes"] >= 0.005 * saved
    ]
    return "  exact: " + ", ".join(words[:4]) if words else ""


def report(task: str, by_side: dict[str, list[dict]], rows: list[figures.Row], goal: str | None) -> str:
    stock = by_side[STOCK.name]
    accuracy, loss = ([one[field] for one in stock] for field in ("accuracy", "test_loss"))
    lines = [
        f"{task}: stock {statistics.fmean(accuracy):.2f} % (seeds {min(accuracy):.2f} to {max(accuracy):.2f}), test loss"
        f" {statistics.fmean(loss):.4f} ({min(loss):.4f} to {max(loss):.4f}); {len(stock)} seeds, {stock[0]['steps']} steps,"
        f" {stock[0]['parameters']:,} parameters"
    ]
    adaptive = {side.name for side in SIDES if side.adaptive}
    lines.append(harness.table(COLUMNS, [line(row, by_side[row.side], row.side in adaptive) for row in rows]))
    measured = next((by_side[row.side] for row in rows if row.side in adaptive), [])
    lines.append(exact_words(measured, stock[0]["saved"]["bytes"]))
    lines.append(f"  NOT GOOD ENOUGH: {goal}" if goal else "")
    lines += [f"  {one}" for one in sorted({said for runs in by_side.values() for run in runs for said in run["said"]})]
    return "\n".join(one for one in lines if one)


def kept(run: dict) -> dict:
    """For the JSON: of Pleat's counters those that rows are made of."""
    pleat = run["pleat"]
    if pleat is None:
        return run
    fields = ("source_bytes", "payload_bytes", "elements")
    counters = {
        "enabled": pleat["enabled"],
        "codec": {name: {field: pleat["codec"][name][field] for field in fields} for name in figures.CLASSES},
        "records": {"recomputed_bytes": pleat["records"]["recomputed_bytes"]},
        "sensitivity": {name: value for name, value in pleat["sensitivity"].items() if name != "file"},
    }
    return {**run, "pleat": counters}


def main() -> int:
    arguments = parse_arguments()
    names = tasks_of(arguments)
    if arguments.seeds < 2:
        raise Problem("--seeds must be at least 2")
    if min(arguments.jobs, arguments.threads) < 1:
        raise Problem("--jobs and --threads must be at least 1")
    library = harness.find_library(arguments.lib)
    if library is None:
        raise Problem(f"no libpleat.so: {harness.REMEDY}")
    content: dict = {"machine": harness.machine(), "arguments": harness.described(arguments), "tasks": {}}
    harness.write_json(arguments.json, content)  # before an hour of work, not after
    sides = QUICK_SIDES if arguments.quick else SIDES
    wrong = []
    for name in names:
        by_side = measure(name, sides, arguments, library)
        stock = by_side[STOCK.name]
        rows = [
            figures.row_of(name, side.name, stock, by_side[side.name], side.adaptive, side.has_bar) for side in sides
        ]
        goal = TASKS[name].missed(stock)
        print(report(name, by_side, rows, goal), end="\n\n", flush=True)
        content["tasks"][name] = {
            "goal_missed": goal,
            "rows": [{**dataclasses.asdict(row), "verdict": row.verdict} for row in rows],
            "runs": {side: [kept(one) for one in runs] for side, runs in by_side.items()},
        }
        harness.write_json(arguments.json, content)
        if goal is not None:
            wrong.append(f"{name}: {goal}")
        for row in rows:
            bad = row.far_off(*TASKS[name].far) if arguments.quick else row.failure or (row.has_bar and row.verdict != "holds")
            if bad:
                wrong.append(f"{name}, {row.side}: {'worse by far' if arguments.quick and row.counts else row.verdict}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    machine = content["machine"]
    print(f"{used.ru_utime + used.ru_stime:.0f} CPU s in all; {machine['cpu']}, torch {machine['versions']['torch']}")
    if wrong:
        print("not as it should be: " + "; ".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    harness.run_main(main)
