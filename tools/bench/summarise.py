#!/usr/bin/env python3
"""Condenses the raw runs of a benchmark into a summary for tools/bench/results.

Benchmarks write every run, step by step, into the file that --json names: keep that file in the ignored build folder. A
summary keeps the machine, the arguments, every figure of a table and every text. Runs of one row become one entry: a figure
that is the same in all runs stays, another becomes [least, median, greatest], a series of each run by its median. Other
series of numbers become their count, first, median, least, greatest and last value.

    summarise.py RAW.json [NAME=RAW.json ...] -o tools/bench/results/CLAIM_MACHINE.json

Several raw files become one summary with a part for each NAME.
"""

import argparse
import json
import pathlib
import statistics

LONGEST = 5  # numbers that stay as they are
DIGITS = 4
# Parts of a raw run that no table shows: counters of the bridge, each try of a search, each unit of a measurement.
LEFT_OUT = {"pleat", "tries", "said", "rss_bytes", "weights_sha256", "measured", "checked", "units", "load_average",
            "children_peak_bytes", "peak_before_training_bytes", "minor_faults", "parameters", "torch", "unit", "memory_bytes"}


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def rounded(value):
    if not isinstance(value, float):
        return value
    return int(value) if value.is_integer() else float(f"{value:.{DIGITS}g}")


def of_series(series):
    named = {"first": series[0], "median": statistics.median(series), "least": min(series), "greatest": max(series), "last": series[-1]}
    return {"count": len(series)} | {name: rounded(value) for name, value in named.items()}


def spread(values):
    low, middle, high = min(values), statistics.median(values), max(values)
    return rounded(low) if low == high else [rounded(low), rounded(middle), rounded(high)]


def of_runs(runs):
    """One entry for runs that have the same keys. Texts that differ from run to run are left out."""
    entry = {"runs": len(runs)}
    for key in (key for key in runs[0] if key not in LEFT_OUT):
        values = [run[key] for run in runs if key in run]
        if all(is_number(value) for value in values):
            entry[key] = spread(values)
        elif all(isinstance(value, list) and value and all(map(is_number, value)) for value in values):
            entry[key] = spread([statistics.median(value) for value in values])
        elif all(isinstance(value, dict) for value in values):
            entry[key] = of_runs(values)
            del entry[key]["runs"]
        elif all(value == values[0] for value in values):
            entry[key] = condensed(values[0])
    return entry


def are_runs(values):
    """Repetitions: the same keys, among them a step time, losses or a seed, which rows of a table do not have."""
    return (
        len(values) > 1
        and all(isinstance(value, dict) for value in values)
        and all(value.keys() == values[0].keys() for value in values)
        and any("step_seconds" in key or key in ("losses", "seed", "replacement") for key in values[0])
    )


def condensed(value):
    if isinstance(value, dict):
        return {key: condensed(part) for key, part in value.items() if key not in LEFT_OUT}
    if isinstance(value, list):
        if len(value) > LONGEST and all(map(is_number, value)):
            return of_series(value)
        return of_runs(value) if are_runs(value) else [condensed(part) for part in value]
    return rounded(value)


def text_of(value, depth=0):
    """JSON with a line for each entry of the upper levels, so that a change of one figure changes one line."""
    if depth == 3 or not value or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    indent = " " * (depth + 1)
    lines = [f"{indent}{json.dumps(key)}: {text_of(part, depth + 1)}" for key, part in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{' ' * depth}}}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", nargs="+", metavar="[NAME=]RAW")
    parser.add_argument("-o", "--output", required=True, type=pathlib.Path, metavar="FILE")
    arguments = parser.parse_args()
    parts = {}
    for one in arguments.raw:
        name, _, path = one.rpartition("=")
        parts[name] = condensed(json.loads(pathlib.Path(path).read_text()))
    whole = parts[""] if list(parts) == [""] else parts
    arguments.output.write_text(text_of(whole) + "\n")


if __name__ == "__main__":
    main()
