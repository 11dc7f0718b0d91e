#!/usr/bin/env python3
"""What a trace costs, and whether its figures are the allocator's own.

  event      the cost of an event in its thread (pleat_trace_bench)
  share      of a step that the recorder takes by its own count: events and stacks, callbacks of operators, small
             tensors, the writer's thread; by kind of stack. Step times of the same runs, paired with runs without a trace
  file       bytes an event on disk
  reading    seconds and memory of `pleat trace summary` (and report, where the command has it) of 10 million events
  accounting peaks of live and reserved bytes, of payload, saved and restored bytes, against pleat.stats(), to the byte;
             the highest resident sample against VmHWM; bytes of no class at the peak

With --off OTHER_BUILD, an older build folder, what costs without a trace is compared: pool and saved tensors.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import harness
from harness import Problem, Row

SHARES = {"none": 0.01, "python": 0.02, "both": 0.04}
MODELS = ("chargpt", "resnet50", "bert")
ACCOUNTING_MODES = ("bits:4", "bits:lossless", "bits:off", "bits:4,place:inplace,when:forward_end")
PARTS = ("event", "share", "accounting", "reading", "off")
KINDS = {"peak_live": "requested", "peak_reserved": "reserved", "peak_payload": "payload",
         "peak_saved_raw": "saved_raw", "peak_restored": "restored"}


def event_costs(binaries: pathlib.Path, repeat: int) -> dict[str, float]:
    runs = [json.loads(subprocess.run([binaries / "pleat_trace_bench", "--json"], check=True, capture_output=True,
                                      text=True).stdout) for _ in range(repeat)]
    return {key: statistics.median(run[key] for run in runs) if runs[0][key] is not None else None for key in runs[0]}


def own_share(result: dict) -> float:
    """Of the steps' wall time; the model's making and loading have few events."""
    own = result["pleat"]["trace"]
    busy = own["event_ns"] + own["callback_ns"] + own["small_ns"] + own["writer_ns"]
    return busy / 1e9 / sum(result["step_seconds"])


def shares(model: str, arguments, library, binaries) -> dict:
    options = ["--model", model, "--steps", str(arguments.steps)]
    rows: dict[str, list[dict]] = {stacks: [] for stacks in ("off", *SHARES)}
    for turn in range(arguments.repeat):
        for stacks in harness.in_turn(list(rows), turn):
            harness.progress(f"{model}: stacks {stacks}")
            if stacks == "off":
                run = harness.train(Row("bits:4", "bits:4"), options, library, arguments.threads)
            else:
                run = harness.traced("bits:4", stacks, options, library, arguments.threads, binaries)
            rows[stacks].append(run)
    harness.progress("")
    figures = {}
    for stacks, bar in SHARES.items():
        runs = rows[stacks]
        ratios = [run["median_step_seconds"] / off["median_step_seconds"] for run, off in zip(runs, rows["off"])]
        last = runs[-1]
        figures[stacks] = {
            "share": statistics.median(map(own_share, runs)),
            "bar": bar,
            "step_time": statistics.median(ratios) - 1,
            "step_seconds": statistics.median(run["median_step_seconds"] for run in runs),
            "events_a_step": last["summary"]["events"] / arguments.steps,
            "bytes_an_event": last["file_bytes"] / last["summary"]["events"],
            "lost": last["summary"]["lost_events"],
            "own": last["pleat"]["trace"],
        }
    return figures


def accounting(model: str, conf: str, arguments, library, binaries) -> dict:
    run = harness.traced(conf, "python", ["--model", model, "--steps", "4"], library, arguments.threads, binaries)
    summary = run["summary"]
    host = next(device for device in summary["devices"] if device["device"] == "host")
    differences = {name: host[name]["bytes"] - run["pleat"]["bytes"][kind]["peak"] for name, kind in KINDS.items()}
    moment = host["moment"]
    unknown = moment["classes"].get("unknown", 0)
    return {
        "model": model,
        "conf": conf,
        "differences": differences,
        "unknown": unknown / max(1, moment["live_bytes"]),
        "disagreements": summary["disagreements"],
        "lost": summary["lost_events"],
        "resident": summary["resident_peak_bytes"] / run["peak_bytes"],
        "live_bytes": moment["live_bytes"],
        "classes": moment["classes"],
    }


def measured_command(command: list) -> dict:
    """Wall seconds and peak memory of a command that must succeed."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise Problem(f"{' '.join(map(str, command))} failed: {process.stderr.read().decode(errors='replace').strip()}")
    return {"seconds": time.perf_counter() - start, "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "peak_bytes": usage.ru_maxrss * 1024}


def reading(binaries: pathlib.Path, events: int) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        file, page = pathlib.Path(folder) / "large.trace", pathlib.Path(folder) / "large.html"
        harness.progress(f"writing {events} events")
        subprocess.run([binaries / "pleat_trace_bench", "--write", file, str(events)], check=True, capture_output=True)
        figures = {"events": events, "file_bytes": file.stat().st_size}
        harness.progress("reading them")
        figures["summary"] = measured_command([binaries / "pleat", "trace", "summary", file])
        helped = subprocess.run([binaries / "pleat", "trace", "--help"], capture_output=True, text=True).stdout
        if re.search(r"^\s+report\b", helped, re.M):
            figures["report"] = measured_command([binaries / "pleat", "trace", "report", "-o", page, file])
        harness.progress("")
    return figures


def without_a_trace(binaries: pathlib.Path, other: pathlib.Path, repeat: int) -> dict:
    """Medians and ranges of pool benches of this build and of an older one, in turn."""
    runs: dict[str, list[dict[str, float]]] = {"now": [], "before": []}
    for turn in range(repeat):
        for name in harness.in_turn(list(runs), turn):
            program = (binaries if name == "now" else other / "bin") / "pleat_pool_bench"
            harness.progress(f"pool bench, {name}")
            done = subprocess.run([program, "--benchmark_format=json", "--benchmark_min_time=0.2"], check=True,
                                  capture_output=True, text=True)
            runs[name].append({b["name"]: b["cpu_time"] for b in json.loads(done.stdout)["benchmarks"]
                               if b.get("run_type", "iteration") == "iteration"})
    harness.progress("")
    return {case: {name: {"median": statistics.median(run[case] for run in of), "least": min(run[case] for run in of),
                          "most": max(run[case] for run in of)} for name, of in runs.items()}
            for case in runs["now"][0]}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="examples:\n  python tools/bench/trace.py --json trace.json\n"
               "  python tools/bench/trace.py --parts share --model chargpt --repeat 3",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", default="event,share,accounting,reading", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--model", default=",".join(MODELS), help=f"one or several with commas (default: {','.join(MODELS)})")
    parser.add_argument("--modes", default=";".join(ACCOUNTING_MODES), help="PLEAT_CONFs of the accounting, with semicolons")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--repeat", type=int, default=3, metavar="R", help="pairs (default 3)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--events", type=int, default=10_000_000, help="of the reading")
    parser.add_argument("--off", metavar="BUILD", help="an older build folder, for the part `off`")
    parser.add_argument("--lib", metavar="FILE", help="libpleat.so; default: build/lib/libpleat.so")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args()


def print_shares(model: str, figures: dict) -> None:
    print(f"\n{model}: share of a step by the recorder's own count")
    rows = [[stacks, f"{f['share']:.2%}", f"{f['bar']:.0%}", f"{f['step_time']:+.1%}", f"{f['events_a_step']:.0f}",
             f"{f['bytes_an_event']:.1f}", str(f["lost"])] for stacks, f in figures.items()]
    print(harness.table(["stacks", "share", "bar", "step time", "events a step", "bytes an event", "lost"], rows))


def main() -> int:
    arguments = parse_arguments()
    library = harness.find_library(arguments.lib)
    if library is None:
        raise Problem(f"there is no libpleat.so: {harness.REMEDY}")
    binaries = library.parent.parent / "bin"
    parts = arguments.parts.split(",")
    models = arguments.model.split(",")
    result: dict = {"arguments": harness.described(arguments), "machine": harness.machine()}
    if "event" in parts:
        result["event"] = event_costs(binaries, arguments.repeat)
        print(harness.table(["event", "ns"], [[k, "-" if v is None else f"{v:.1f}"] for k, v in result["event"].items()]))
    if "share" in parts:
        result["share"] = {}
        for model in models:
            result["share"][model] = shares(model, arguments, library, binaries)
            print_shares(model, result["share"][model])
    if "accounting" in parts:
        result["accounting"] = []
        for model in models:
            for conf in arguments.modes.split(";"):
                harness.progress(f"accounting: {model} {conf}")
                row = accounting(model, conf, arguments, library, binaries)
                harness.progress("")
                result["accounting"].append(row)
                wrong = {k: v for k, v in row["differences"].items() if v}
                print(f"{model:12} {conf:40} {'to the byte' if not wrong else wrong}; unknown {row['unknown']:.2%}, "
                      f"resident {row['resident']:.1%} of VmHWM, disagreements {row['disagreements']}, lost {row['lost']}",
                      flush=True)
    if "reading" in parts:
        result["reading"] = reading(binaries, arguments.events)
        for what in ("summary", "report"):
            if what in result["reading"]:
                r = result["reading"][what]
                print(f"{what} of {arguments.events} events: {r['seconds']:.1f} s, {harness.megabytes(r['peak_bytes'])}")
    if "off" in parts:
        if not arguments.off:
            raise Problem("the part `off` needs --off BUILD")
        result["off"] = without_a_trace(binaries, pathlib.Path(arguments.off), max(5, arguments.repeat))
        rows = [[case, f"{c['now']['median']:.1f}", f"{c['before']['median']:.1f}",
                 f"{c['before']['least']:.1f}..{c['before']['most']:.1f}"] for case, c in result["off"].items()]
        print(harness.table(["ns without a trace", "now", "before", "range before"], rows))
    harness.write_json(arguments.json, result)
    return 0


if __name__ == "__main__":
    harness.run_main(main)
