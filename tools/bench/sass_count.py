#!/usr/bin/env python3
"""Instructions per element of the CUDA kernels, counted in their machine code.

    tools/bench/sass_count.py [--image build/compress/cuda/pleat_kernels.fatbin] [--arch sm_90]
                              [--kernel encode_float32_4 ...] [--json FILE]

Needs cuobjdump: on PATH, beside nvcc, or from a package that brings it along with nvdisasm
(`pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm`).

Method: a thread handles 32 elements (a lane's share of a group) per turn of the kernel's loop. Counted
are the instructions on the shortest way round that loop which passes a 128-bit load and a Philox
multiplication (encode), or a Philox multiplication and a 128-bit store (decode): a whole, aligned,
dithered group, with nothing left out that every group needs. Predicated instructions count as
executed; calls (slow paths of divisions) are not on the way.
"""

import argparse
import heapq
import json
import os
import pathlib
import re
import shutil
import site
import subprocess
import sys

ELEMENTS_PER_TURN = 32
# The multipliers of Philox4x32, as immediates are printed: unsigned or negative.
MULTIPLIERS = {
    form
    for value in (0xD2511F53, 0xCD9E8D57)
    for form in (f"{value:#x}", f"-{(1 << 32) - value:#x}")
}
LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s+/\*")


def find_cuobjdump():
    found = shutil.which("cuobjdump")
    if found:
        return found
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    places = [pathlib.Path(nvcc).resolve().parent]
    for packages in site.getsitepackages() + [site.getusersitepackages()]:
        places += pathlib.Path(packages).glob("nvidia/*/bin")
    for place in places:
        if (place / "cuobjdump").exists():
            return str(place / "cuobjdump")
    return None


def parse(listing):
    """Kernel name -> list of (address, text)."""
    kernels, current = {}, None
    for line in listing.splitlines():
        if "Function :" in line:
            current = kernels.setdefault(line.split(":")[1].strip(), [])
        elif current is not None and (match := LINE.match(line)):
            current.append((int(match[1], 16), match[2]))
    return kernels


class Flow:
    """The instructions of a kernel and where each can lead."""

    def __init__(self, code):
        self.text = [text for _, text in code]
        index = {address: i for i, (address, _) in enumerate(code)}
        self.next = []
        for i, text in enumerate(self.text):
            predicated = text.startswith("@")
            words = text.split(None, 1)[1].split() if predicated else text.split()
            operation = words[0].split(".")[0]
            onward = [i + 1] if i + 1 < len(code) else []
            if operation in ("BRA", "JMP"):
                target = index[int(words[-1].strip("`()"), 16)]
                divergent = words[0].startswith("BRA.DIV")  # only where lanes have parted
                conditional = predicated or len(words) > 2
                onward = onward if divergent else [target] + (onward if conditional else [])
            elif operation in ("EXIT", "RET", "BRX", "KILL"):
                onward = onward if predicated else []
            elif operation == "CALL":
                onward = []
            self.next.append(onward)

    def matching(self, test):
        return {i for i, text in enumerate(self.text) if test(text)}

    def shortest(self, start, end, waypoints):
        """Instructions from start to end, both counted, through one of each set in turn."""
        stages = len(waypoints)
        first = 0
        while first < stages and start in waypoints[first]:
            first += 1
        queue, seen = [(1, start, first, None)], {}
        while queue:
            cost, node, stage, previous = heapq.heappop(queue)
            if (node, stage) in seen:
                continue
            seen[node, stage] = previous
            if node == end and stage == stages:
                way, at = [], (node, stage)
                while at is not None:
                    way.append(at[0])
                    at = seen[at]
                return way[::-1]
            for onward in self.next[node]:
                to = stage + 1 if stage < stages and onward in waypoints[stage] else stage
                heapq.heappush(queue, (cost + 1, onward, to, (node, stage)))
        return None


def hot_turn(name, code):
    flow = Flow(code)
    philox = flow.matching(lambda text: any(m in text.replace(",", " ").split() for m in MULTIPLIERS))
    encode = "encode" in name
    wide = flow.matching(lambda text: ("LDG.E.128" if encode else "STG.E.128") in text)
    waypoints = [wide, philox] if encode else [philox, wide]
    best = None
    for end, targets in enumerate(flow.next):
        for start in targets:
            if start <= end:
                way = flow.shortest(start, end, waypoints)
                if way and (best is None or len(way) < len(best)):
                    best = way
    if best is None:
        sys.exit(f"sass_count: no loop with the expected loads, stores and Philox in {name}")
    return [flow.text[i] for i in best]


def operation(text):
    words = text.split()
    return words[1 if text.startswith("@") else 0].split(".")[0]


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    build = pathlib.Path(os.environ.get("PLEAT_BUILD_DIR", root / "build"))
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--image", default=build / "compress/cuda/pleat_kernels.fatbin")
    arguments.add_argument("--arch", default="sm_90")
    arguments.add_argument("--kernel", action="append", help="default: encode and decode, float32, 4 bits")
    arguments.add_argument("--json", type=pathlib.Path)
    arguments.add_argument("--listing", action="store_true", help="print the instructions too")
    options = arguments.parse_args()
    tool = find_cuobjdump()
    if tool is None:
        sys.exit("sass_count: no cuobjdump; pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    names = [f"pleat_{k}" for k in options.kernel or ["encode_float32_4", "decode_float32_4"]]
    listing = subprocess.run(
        [tool, "-sass", "-arch", options.arch, "-fun", ",".join(names), options.image],
        check=True, capture_output=True, text=True).stdout
    kernels = parse(listing)
    results = {}
    for name in names:
        if name not in kernels:
            sys.exit(f"sass_count: no {name} for {options.arch} in {options.image}")
        turn = hot_turn(name, kernels[name])
        kinds = {}
        for text in turn:
            kinds[operation(text)] = kinds.get(operation(text), 0) + 1
        results[name.removeprefix("pleat_")] = {
            "arch": options.arch,
            "instructions": len(turn),
            "instructions_per_element": round(len(turn) / ELEMENTS_PER_TURN, 2),
            "operations": dict(sorted(kinds.items(), key=lambda kind: -kind[1])),
        }
        print(f"{name}: {len(turn)} instructions for {ELEMENTS_PER_TURN} elements, "
              f"{len(turn) / ELEMENTS_PER_TURN:.2f} each")
        print("   ", ", ".join(f"{kind} {n}" for kind, n in results[name.removeprefix('pleat_')]["operations"].items()))
        if options.listing:
            print("\n".join("        " + text for text in turn))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
