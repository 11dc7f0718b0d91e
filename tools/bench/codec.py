#!/usr/bin/env python3
"""Codec speed beside memcpy and memset: runs build/bin/pleat_codec_bench and writes its medians as JSON.

    build/venv/bin/python tools/bench/codec.py --json FILE [--repeats 5] [--mebibytes 256] [--threads 2] [--gpu FILE]

Each repeat is a fresh process that times every row; a row's figure is the median over the repeats, each of which is
in the JSON too. GB/s are 10^9 bytes: of the source for encoding, written for decoding, copied for memcpy (n, not 2n).
memcpy and memset run in two ways, whole (a call per thread) and in parts of 1 MiB; what a codec is held against is the
faster way of the same process. "of_memcpy" and "of_memset" are medians of ratios within one process, "ratio" is bytes
of the source by those of the payload. Debian's Google Benchmark warns that it "was built as DEBUG"; that concerns its
own code, not the loops timed.

Where this CPU has AVX-512, one more process takes AVX2's speed at 4 bits ("avx2_of_avx512_..."). A GPU's figures
come from the JSON of tools/gpu_check.sh: "gpu_encode_of_copy" is the least over float32, bfloat16 and float16 at
4 bits, dithered, from 64 MiB on; every row has a name of its own as well. The table at the end, "bars" in the JSON,
holds figures against what the codecs are meant to reach at 256 MiB and 2 threads; runs of another size judge nothing.
The exit code does not depend on it.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
NOT_MEASURED = "not measured"
FLOAT32_4BIT = ("encode_fp32_4bit", "decode_fp32_4bit")
BARS = {  # at least
    "encode_fp32_4bit_of_memcpy": 1.0,
    "decode_fp32_4bit_of_memset": 0.9,
    **{f"encode_{kind}_{bits}bit_of_memcpy": 0.65 for kind in ("bf16", "fp16") for bits in (4, 2, 8)},
    "encode_bool_of_memcpy": 0.8,
    "encode_int64_of_memcpy": 0.8,
    **{f"avx2_of_avx512_{name}": 0.6 for name in FLOAT32_4BIT},
    "encode_lossless_bf16_ratio": 1.3,  # Gaussian
    "encode_bool_ratio": 7.9,
    "encode_int64_ratio": 3.9,  # below 2^16
    "gpu_encode_of_copy": 0.85,
    "gpu_decode_of_copy": 0.85,
}
JUDGED_AT = {"mebibytes": 256, "threads": 2}


def row_name(benchmark: str) -> str:
    """encode/float32/bits:4/threads:2/real_time -> encode_fp32_4bit"""
    parts = []
    for part in benchmark.split("/"):
        if part.startswith("bits:"):
            parts.append(part.removeprefix("bits:") + "bit")
        elif not part.startswith("threads:") and part != "real_time":
            parts.append(SHORT.get(part, part))
    return "_".join(parts)


def with_faster_copies(gbps: dict[str, float]) -> dict[str, float]:
    """memcpy and memset: the faster of the two ways of one process."""
    faster = {}
    for name in ("memcpy", "memset"):
        if ways := [gbps[way] for way in (f"{name}_whole", f"{name}_parts") if way in gbps]:
            faster[name] = max(ways)
    return faster | gbps


def run_once(arguments: argparse.Namespace, rows: str, isa: str | None) -> tuple[dict, dict, dict]:
    """Context, GB/s and ratios of one process; `rows`: a regular expression that a benchmark's name begins with."""
    binary = arguments.binary
    command = [
        str(binary),
        f"--mebibytes={arguments.mebibytes}",
        f"--benchmark_filter=^({rows}).*/threads:{arguments.threads}/",
        "--benchmark_format=json",
        "--benchmark_min_time=0.3",  # of a repeat
    ]
    if isa:
        command.append(f"--isa={isa}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 or not done.stdout:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        sys.exit(f"codec.py: {binary.name} failed: {said[-1]}")
    report = json.loads(done.stdout)
    gbps, ratios = {}, {}
    for entry in report["benchmarks"]:
        if entry.get("error_occurred"):
            sys.exit(f"codec.py: {entry['name']}: {entry.get('error_message', 'failed')}")
        name = row_name(entry["name"])
        gbps[name] = entry["bytes_per_second"] / 1e9
        if "ratio" in entry:
            ratios[name] = entry["ratio"]
    return report["context"], with_faster_copies(gbps), ratios


def avx2_of_avx512(arguments: argparse.Namespace, isa: str, gbps: dict[str, float], notes: list[str]) -> dict:
    """`gbps`: of AVX-512, if that is what `isa` says."""
    wanted = [name for name in FLOAT32_4BIT if name in gbps]
    found = {f"avx2_of_avx512_{name}": NOT_MEASURED for name in FLOAT32_4BIT}
    if isa != "avx512":
        if arguments.isa:
            notes.append(f"avx2_of_avx512: not measured, as --isa={arguments.isa} was asked for")
        else:
            notes.append(f"this CPU has no AVX-512: speeds are those of {isa}, avx2_of_avx512 is not measured")
    elif wanted:
        _, avx2, _ = run_once(arguments, "(encode|decode)/float32/bits:4", "avx2")
        found |= {f"avx2_of_avx512_{name}": round(avx2[name] / gbps[name], 3) for name in wanted}
    return found


def gpu_figures(path: pathlib.Path | None, notes: list[str]) -> dict:
    """From what tools/gpu_check.sh writes: the least over float types at 4 bits, and every row."""
    found = {"gpu_encode_of_copy": NOT_MEASURED, "gpu_decode_of_copy": NOT_MEASURED}
    if path is None:
        notes.append("gpu_..._of_copy: not measured, no --gpu FILE of tools/gpu_check.sh")
        return found
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError) as problem:
        sys.exit(f"codec.py: --gpu {path}: {problem}")
    if not report.get("gpu"):
        notes.append(f"gpu_..._of_copy: not measured, {path.name} says: {report.get('reason', 'no GPU')}")
        return found
    if report.get("payloads_wrong"):
        notes.append(f"{path.name}: {report['payloads_wrong']} payloads are wrong")
    rows = [row for row in report["speed"] if row["source_mib"] >= 64]
    plain = [row for row in rows if row["bits"] == 4 and row["transform"] == "none"]
    for way in ("encode_of_copy", "decode_of_copy"):
        if plain:
            found[f"gpu_{way}"] = min(row[way] for row in plain)
        for row in rows:
            transform = "" if row["transform"] == "none" else row["transform"] + "_"
            name = f"{transform}{SHORT[row['type']]}_{row['bits']}bit_{row['source_mib']}mib"
            found[f"gpu_{way.replace('_of', f'_{name}_of')}"] = row[way]
    return found | {"gpu": report["gpu"]}


def judge(result: dict, notes: list[str]) -> list[dict]:
    """A row per bar; `holds` is None where the run says nothing about it."""
    fit = all(result[name] == value for name, value in JUDGED_AT.items()) and result["isa"] != "scalar"
    if not fit:
        notes.append("bars are of 256 MiB, 2 threads and vector code: this run judges no speed or ratio of the CPU")
    rows = []
    for name, bar in BARS.items():
        seen = result.get(name, NOT_MEASURED)
        judged = seen != NOT_MEASURED and (fit or name.startswith("gpu_"))
        rows.append({"name": name, "bar": bar, "seen": seen, "holds": seen >= bar if judged else None})
    return rows


def as_text(result: dict) -> str:
    """JSON with a line for each list of numbers and each bar."""
    text = json.dumps(result, indent=1)
    return re.sub(r'\[[-\s\d.,]+\]|\{\s+"name"[^{}]+\}', lambda part: " ".join(part[0].split()), text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument("--repeats", type=int, default=5, help="processes; at least 1")
    parser.add_argument("--mebibytes", type=int, default=256, help="bytes of the source or target")
    parser.add_argument("--threads", type=int, choices=(1, 2), default=2)
    parser.add_argument("--isa", choices=("scalar", "avx2", "avx512"), help="default: the best this CPU has")
    parser.add_argument("--filter", default="", help="regular expression a benchmark's name begins with")
    parser.add_argument("--gpu", metavar="FILE", type=pathlib.Path, help="JSON of tools/gpu_check.sh, for the GPU's figures")
    build = pathlib.Path(os.environ.get("PLEAT_BUILD_DIR", ROOT / "build"))
    parser.add_argument("--binary", type=pathlib.Path, default=build / "bin" / "pleat_codec_bench")
    arguments = parser.parse_args()
    if arguments.repeats < 1:
        parser.error("--repeats must be at least 1")
    if not arguments.binary.exists():
        sys.exit(f"codec.py: no {arguments.binary}: build it with `bash tools/setup.sh` (needs libbenchmark-dev)")

    notes = []
    gpu = gpu_figures(arguments.gpu, notes)
    speeds = collections.defaultdict(list)
    of_memory = collections.defaultdict(list)
    ratios = {}
    context = {}
    for _ in range(arguments.repeats):
        context, gbps, ratios = run_once(arguments, arguments.filter, arguments.isa)
        for name, value in gbps.items():
            speeds[name].append(value)
            if name.startswith("mem"):
                continue
            reference = "memset" if name.startswith("decode") else "memcpy"
            if reference in gbps:
                of_memory[f"{name}_of_{reference}"].append(value / gbps[reference])
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    result = {f"{name}_gbps": round(value, 3) for name, value in medians.items()}
    result |= {name: round(statistics.median(values), 3) for name, values in of_memory.items()}
    result |= {f"{name}_ratio": round(value, 3) for name, value in ratios.items()}
    result |= avx2_of_avx512(arguments, context["isa"], medians, notes)
    result |= gpu
    result |= {
        "isa": context["isa"],
        "cpus": context.get("num_cpus"),
        "load_average": context.get("load_avg"),
        "mebibytes": arguments.mebibytes,
        "threads": arguments.threads,
        "repeats": arguments.repeats,
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    result["bars"] = judge(result, notes)
    result["notes"] = notes
    result["repeats_gbps"] = {f"{name}_gbps": [round(value, 3) for value in values] for name, values in speeds.items()}
    result["repeats_of_memory"] = {name: [round(value, 3) for value in values] for name, values in of_memory.items()}

    for name in speeds:
        beside = [f"{result[f'{name}_of_{other}']:6.2f} of {other}"
                  for other in ("memcpy", "memset") if f"{name}_of_{other}" in result]
        if name in ratios:
            beside.append(f"{ratios[name]:8.2f}x smaller")
        print(f"{name + '_gbps':34} {result[f'{name}_gbps']:8.2f}", *beside)
    print(f"\n{'bar':38} {'at least':>8} {'seen':>13}")
    for row in result["bars"]:
        verdict = {True: "holds", False: "MISSED", None: "-"}[row["holds"]]
        print(f"{row['name']:38} {row['bar']:8.2f} {row['seen']:>13} {verdict}")
    for note in notes:
        print("note:", note)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(as_text(result))


if __name__ == "__main__":
    main()
