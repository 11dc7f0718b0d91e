#!/usr/bin/env python3
"""Instructions per element of the CUDA kernels, counted in their machine code.

examples:
    tools/bench/sass_count.py                                      float32, 4 bits, both ways
    tools/bench/sass_count.py --kernel encode_bfloat16_2 --listing
    tools/bench/sass_count.py --all --arch sm_80 --arch sm_90 --json FILE

Needs cuobjdump with its nvdisasm: on PATH, beside nvcc, or from a Python package here or in the
build's venv: triton (which torch brings along), or nvidia-cuda-cuobjdump with nvidia-cuda-nvdisasm.

How it counts: a thread handles 32 elements (a lane's share of a group) per turn of the kernel's loop.
Counted are the instructions on the shortest way round that loop which passes the 128-bit loads and
Philox's multiplications (encode), or those multiplications and the 128-bit stores (decode): a whole,
aligned, dithered group. The way has to hold all 128-bit accesses of 32 elements and the
multiplications of both calls of Philox, and to keep clear of inner loops: those are of rare groups.
Instructions whose predicate is false count as executed. Not on the way: calls (slow paths of
divisions), and branches for lanes that have parted. Lanes of a warp whose groups go different ways
execute both, which is not counted either.

Where Philox stands several times in the code, every place is a way of its own. At 2 bits and more
there are two. The shorter one, which is the figure given, is that of groups as they come. The longer
one is that of groups that keep an exact zero (no element is negative, and one is zero: what ReLU
puts out): there a minimum over the elements above zero, and a test and a selection per element, are
added. (At 1 bit a decoder has it too, but no encoder's payload takes it.)

Groups with exponents go further ways, which are not on the shortest one and are not counted.

The bars, 14 instructions per element for encode and 12 for decode, were set without naming a width
or a machine. They are held to at 4 bits, the default, for float32, bfloat16 and float16, in groups as
they come, not rotated, on sm_80, sm_90 and sm_100. Other widths are counted too, and some are above:
encode at 3 bits (sm_80, sm_90: 14.8 to 15.6; sm_100: 14.0 to 14.5), encode of bfloat16 and float16 at
2 bits on sm_80 (14.0 and 14.2), decode of bfloat16 and float16 at 3 and 8 bits on sm_80 and sm_90 (12.0
to 12.6), and of float32 at 1, 2, 3 and 8 bits (sm_80, sm_90: 12.0 to 13.7; sm_100: up to 12.7): two lanes
swap values there before they store, which takes two instructions an element more and, on an H200, a fifth
less time.
Well above are groups that keep a zero, and rotated ones (32 to 38). All figures but those of 6 bits:
tools/bench/results/sass_instructions.json. At 6 bits nvcc 13.0 gives for sm_90 14.6 to 14.9 for encode,
and for decode 13.0 (float32), 11.5 (bfloat16) and 11.9 (float16).

Not covered, by name:
"""

import argparse
import hashlib
import heapq
import json
import os
import pathlib
import re
import shutil
import site
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
ELEMENTS_PER_TURN = 32
BARS = {"encode": 14, "decode": 12}
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
COVERED = re.compile(r"pleat_(encode|decode)_(transformed_)?(float32|bfloat16|float16)_([123468])")
NOT_COVERED = {
    "encode_scaled_*, decode_scaled_*": "a group is scaled or dithered, and no instruction tells which way is which",
    "encode_framed_*, decode_framed_*": "tiles wait for those before them, and what a group takes depends on its content",
    "encode_in_place_*": "tiles wait for those that they write over, and payloads leave in loops of their own",
    "survey_*": "only counts escapes, before in-place encoding",
    "encode_*_0, decode_*_0": "of groups with two values at most: no dither that would mark the way",
    "encode_sides_*, decode_sides_*, move_to_sides_*": "comparisons: no dither that would mark the way",
    "look_at_columns_*, keep_lines_*, restore_lines_*": "looks at a few elements of a line, and at all of one that looks flat",
    "measure_parts_*": "maxima of parts, before an encode with exponents",
    "spread_*, mix_*": "noise, which is added in one of many steps",
    "keep_near_zero_*, restore_near_zero_*": "comparisons: no dither that would mark the way",
    "spread_*, mix_*": "only in measurements of sensitivity",
    "sketch_*": "only in measurements of sensitivity; sums in double precision",
    "encode_bool, decode_bool, encode_int*, decode_int*": "integers: no dither that would mark the way",
}
# The multipliers of Philox4x32, as immediates are printed: unsigned or negative.
MULTIPLIERS = {
    form
    for value in (0xD2511F53, 0xCD9E8D57)
    for form in (f"{value:#x}", f"-{(1 << 32) - value:#x}")
}
# A call has 14, less what calls share: the noise's two differ in a word of the counter, a group's
# two for the signs of a rotation as well. More than the one call, or than the signs, is both.
LEAST_MULTIPLICATIONS = {"": 15, "transformed_": 29}
LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s+/\*")


class NotCounted(Exception):
    pass


def build_folder():
    return pathlib.Path(os.environ.get("PLEAT_BUILD_DIR", ROOT / "build"))


def find_cuobjdump():
    found = shutil.which("cuobjdump")
    if found:
        return found
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    places = [pathlib.Path(nvcc).resolve().parent]
    packages = [*site.getsitepackages(), site.getusersitepackages()]
    packages += (build_folder() / "venv" / "lib").glob("python3*/site-packages")
    for folder in map(pathlib.Path, packages):
        places += folder.glob("nvidia/*/bin")
        places.append(folder / "triton" / "backends" / "nvidia" / "bin")
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
            words = text.split()[1:] if predicated else text.split()
            operation = words[0].split(".")[0]
            onward = [i + 1] if i + 1 < len(code) else []
            if operation in ("BRA", "JMP"):
                target = index[int(words[-1].strip("`()"), 16)]
                divergent = words[0].startswith("BRA.DIV")  # only where lanes have parted
                conditional = predicated or len(words) > 2
                onward = onward if divergent else [target] + (onward if conditional else [])
            elif operation in ("EXIT", "RET", "BRX", "KILL", "CALL"):
                # sm_80 leaves a loop by `@P0 CALL`, which never comes back, in front of the way round.
                onward = onward if predicated else []
            self.next.append(onward)
        self.before = [[] for _ in self.next]
        for i, targets in enumerate(self.next):
            for target in targets:
                self.before[target].append(i)
        self.backward = [(i, t) for i, targets in enumerate(self.next) for t in targets if t <= i]

    def matching(self, test):
        return {i for i, text in enumerate(self.text) if test(text)}

    def first_of_blocks(self, chosen):
        """One of `chosen` per run of instructions that nothing leads into or out of."""
        firsts, taken = [], False
        for i in range(len(self.text)):
            if self.before[i] != [i - 1] or self.next[i - 1] != [i]:
                taken = False
            if i in chosen and not taken:
                firsts.append(i)
                taken = True
        return firsts

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

    def shortest_turn(self, waypoints):
        """Of any loop."""
        turns = (self.shortest(start, end, waypoints) for end, start in self.backward)
        return min((turn for turn in turns if turn), key=len, default=None)

    def inner_loop(self, way):
        """Does a loop within that of `way` pass one of its instructions?"""
        start, on_way = way[0], set(way)
        for end, inner in self.backward:
            if inner != start:
                around = reach(self.next, inner, start) & reach(self.before, end, start)
                if end in around and on_way & around:
                    return True
        return False


def reach(edges, start, without):
    seen, left = set(), [start]
    while left:
        node = left.pop()
        if node != without and node not in seen:
            seen.add(node)
            left += edges[node]
    return seen


def turns(code, encode, wide_accesses, least_multiplications):
    """Every way round the loop, the shortest first, each a list of instructions. Of two loops, the one with the shortest way."""
    flow = Flow(code)
    philox = flow.matching(lambda text: any(m in text.replace(",", " ").split() for m in MULTIPLIERS))
    access = re.compile(rf"\b{'LDG' if encode else 'STG'}\.E(\.\w+)*\.128\b")
    wide = flow.matching(access.search)
    ways = []
    for place in flow.first_of_blocks(philox):
        way = flow.shortest_turn([wide, {place}] if encode else [{place}, wide])
        if way and way not in ways and len(philox.intersection(way)) >= least_multiplications:
            ways.append(way)
    if not ways:
        raise NotCounted("no loop with the expected loads, stores and Philox")
    ways = [way for way in ways if not flow.inner_loop(way)]  # those are of rare groups
    if not ways:
        raise NotCounted("a loop within the loop")
    loop = min(ways, key=len)[0]
    ways = [way for way in ways if way[0] == loop]
    for way in ways:
        if (found := len(wide.intersection(way))) != wide_accesses:
            raise NotCounted(f"{found} accesses of 128 bits in a turn instead of {wide_accesses}")
    return [[flow.text[i] for i in way] for way in sorted(ways, key=len)]


def turns_of(name, code):
    match = COVERED.fullmatch(name)
    if not match:
        raise NotCounted("not covered, see --help")
    direction, transformed, type_name, _ = match.groups()
    return turns(
        code,
        direction == "encode",
        ELEMENTS_PER_TURN * ELEMENT_BYTES[type_name] // 16,
        LEAST_MULTIPLICATIONS[transformed or ""],
    )


def operation(text):
    words = text.split()
    return words[1 if text.startswith("@") else 0].split(".")[0]


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"sass_count: {pathlib.Path(command[0]).name}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def kernels_of(tool, image, arch):
    """Names, without disassembling anything."""
    symbols = run(tool, "-symbols", "-arch", arch, image)
    return sorted(set(re.findall(r"STT_FUNC\s.*\s(pleat_\w+)\s*$", symbols, re.MULTILINE)))


def count(tool, image, arch, names):
    """Kernel name -> its ways, for all of `names`."""
    kernels = parse(run(tool, "-sass", "-arch", arch, "-fun", ",".join(names), image))
    found = {}
    for name in names:
        try:
            found[name] = turns_of(name, kernels[name])
        except NotCounted as problem:
            sys.exit(f"sass_count: {name} for {arch}: {problem}")
    return found


def per_element(turn):
    return round(len(turn) / ELEMENTS_PER_TURN, 2)


def write_json(path, tool, image, results):
    version = re.search(r"V[\d.]+", run(tool, "--version"))
    head = {
        "counted": "instructions per element: of groups as they come, then of those that keep an exact zero",
        "bars": BARS | {"of": "the first figure, 4 bits, not transformed"},
        "image_sha256": hashlib.sha256(pathlib.Path(image).read_bytes()).hexdigest(),
        "cuobjdump": version[0] if version else None,
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "not_covered": NOT_COVERED,
    }
    lines = [json.dumps(head, indent=1)[:-2]]
    for arch, kernels in results.items():
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(figures)}" for name, figures in kernels.items())
        lines.append(f" {json.dumps(arch)}: {{\n{rows}\n }}")
    path.write_text(",\n".join(lines) + "\n}\n")


def main():
    listed = "\n".join(f"    {names}\n        {why}" for names, why in NOT_COVERED.items())
    arguments = argparse.ArgumentParser(
        description=__doc__ + listed, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--image", default=build_folder() / "compress/cuda/pleat_kernels.fatbin")
    arguments.add_argument("--arch", action="append", help="may be repeated; default: sm_90")
    arguments.add_argument("--kernel", action="append", help="default: encode and decode, float32, 4 bits")
    arguments.add_argument("--all", action="store_true", help="every kernel that is covered")
    arguments.add_argument("--json", type=pathlib.Path)
    arguments.add_argument("--listing", action="store_true", help="print the instructions too")
    options = arguments.parse_args()
    tool = find_cuobjdump()
    if tool is None:
        sys.exit("sass_count: no cuobjdump; pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    if not pathlib.Path(options.image).exists():
        sys.exit(f"sass_count: no {options.image}: built where there is an nvcc")
    results = {}
    for arch in options.arch or ["sm_90"]:
        present = kernels_of(tool, options.image, arch)
        names = [f"pleat_{k}" for k in options.kernel or ["encode_float32_4", "decode_float32_4"]]
        if options.all:
            names = [name for name in present if COVERED.fullmatch(name)]
        if missing := [name for name in names if name not in present] or (not names and ["kernel"]):
            sys.exit(f"sass_count: no {missing[0]} for {arch} in {options.image}")
        if refused := [name for name in names if not COVERED.fullmatch(name)]:
            sys.exit(f"sass_count: {refused[0]} is not covered, see --help")
        results[arch] = {}
        for name, ways in count(tool, options.image, arch, names).items():
            figures = {
                "instructions": [len(way) for way in ways],
                "per_element": [per_element(way) for way in ways],
            }
            results[arch][name.removeprefix("pleat_")] = figures
            print(f"{arch} {name}: {figures['instructions'][0]} instructions for {ELEMENTS_PER_TURN} "
                  f"elements, {figures['per_element'][0]:.2f} each",
                  *(f"({each:.2f} where zero is kept)" for each in figures["per_element"][1:]))
            if not options.all:
                kinds = {}
                for text in ways[0]:
                    kinds[operation(text)] = kinds.get(operation(text), 0) + 1
                print("   ", ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items(), key=lambda kind: -kind[1])))
            if options.listing:
                print("\n".join("        " + text for text in ways[0]))
    if options.json:
        write_json(options.json, tool, options.image, results)


if __name__ == "__main__":
    main()
