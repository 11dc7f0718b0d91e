#!/usr/bin/env python3
"""Codec speed beside memcpy and memset: runs build/bin/pleat_codec_bench and writes its medians as JSON.

    build/venv/bin/python tools/bench/codec.py --json FILE [--repeats 5] [--mebibytes 256] [--threads 2]

Each repeat is a fresh process that times every row; a row's figure is the median over the repeats. GB/s are 10^9 bytes:
of the source for encoding, written for decoding, copied for memcpy (n, not 2n). "of_memcpy" and "of_memset" are
medians of ratios within one process. Debian's Google Benchmark warns that it "was built as DEBUG"; that concerns its
own code, not the loops timed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def row_name(benchmark: str) -> str:
    """encode/float32/bits:4/threads:2/real_time -> encode_fp32_4bit_gbps"""
    parts = []
    for part in benchmark.split("/"):
        if part.startswith("bits:"):
            parts.append(part.removeprefix("bits:") + "bit")
        elif not part.startswith("threads:") and part != "real_time":
            parts.append(SHORT.get(part, part))
    return "_".join(parts) + "_gbps"


def run_once(binary: pathlib.Path, arguments: argparse.Namespace) -> tuple[dict, dict[str, float]]:
    command = [
        str(binary),
        f"--mebibytes={arguments.mebibytes}",
        f"--benchmark_filter={arguments.filter}.*/threads:{arguments.threads}/",
        "--benchmark_format=json",
        "--benchmark_min_time=0.3",  # of a repeat
    ]
    if arguments.isa:
        command.append(f"--isa={arguments.isa}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"codec.py: {binary.name} failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    report = json.loads(done.stdout)
    rows = {}
    for entry in report["benchmarks"]:
        if entry.get("error_occurred"):
            sys.exit(f"codec.py: {entry['name']}: {entry.get('error_message', 'failed')}")
        rows[row_name(entry["name"])] = entry["bytes_per_second"] / 1e9
    return report["context"], rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--mebibytes", type=int, default=256, help="bytes of the source or target")
    parser.add_argument("--threads", type=int, choices=(1, 2), default=2)
    parser.add_argument("--isa", choices=("scalar", "avx2", "avx512"), help="default: the best this CPU has")
    parser.add_argument("--filter", default="", help="regular expression a benchmark's name begins with")
    build = pathlib.Path(os.environ.get("PLEAT_BUILD_DIR", ROOT / "build"))
    parser.add_argument("--binary", type=pathlib.Path, default=build / "bin" / "pleat_codec_bench")
    arguments = parser.parse_args()
    if not arguments.binary.exists():
        sys.exit(f"codec.py: no {arguments.binary}: build it with `bash tools/setup.sh` (needs libbenchmark-dev)")

    figures = collections.defaultdict(list)
    of_memory = collections.defaultdict(list)
    context = {}
    for _ in range(arguments.repeats):
        context, rows = run_once(arguments.binary, arguments)
        for name, value in rows.items():
            figures[name].append(value)
            if name in ("memcpy_gbps", "memset_gbps"):
                continue
            reference = "memset" if name.startswith("decode") else "memcpy"
            if f"{reference}_gbps" in rows:
                key = name.removesuffix("_gbps") + "_of_" + reference
                of_memory[key].append(value / rows[f"{reference}_gbps"])
    result = {name: round(statistics.median(values), 3) for name, values in figures.items()}
    result |= {name: round(statistics.median(values), 3) for name, values in of_memory.items()}
    result |= {
        "isa": context.get("isa"),
        "cpus": context.get("num_cpus"),
        "load_average": context.get("load_avg"),
        "mebibytes": arguments.mebibytes,
        "threads": arguments.threads,
        "repeats": arguments.repeats,
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    for name in figures:
        stem = name.removesuffix("_gbps")
        beside = [f"{result[f'{stem}_of_{other}']:6.2f} of {other}"
                  for other in ("memcpy", "memset") if f"{stem}_of_{other}" in result]
        print(f"{name:34} {result[name]:8.2f}", *beside)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
