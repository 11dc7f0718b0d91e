"""tools/bench/sass_count.py counts whole turns of a loop through the loads and Philox, and the built image keeps the bars."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import IN_CI

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench" / "sass_count.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("sass_count", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# A loop from 0x10 to 0xa0. Through the load and either Philox branch; the slow one has a call.
LISTING = """
    Function : pleat_encode_float32_4
        /*0000*/    S2R R0, SR_TID.X ;   /* 0x0 */
        /*0010*/    ISETP.NE P0, PT, R0, RZ, PT ;   /* 0x0 */
        /*0020*/    @P0 BRA 0x40 ;   /* 0x0 */
        /*0030*/    LDG.E R1, desc[UR4][R2.64] ;   /* 0x0 */
        /*0040*/    LDG.E.128 R4, desc[UR4][R2.64] ;   /* 0x0 */
        /*0050*/    BRA.DIV UR4, 0xc0 ;   /* 0x0 */
        /*0060*/    @P1 BRA 0xd0 ;   /* 0x0 */
        /*0070*/    IMAD.WIDE.U32 R8, R9, -0x2daee0ad, RZ ;   /* 0x0 */
        /*0080*/    FADD R1, R2, R3 ;   /* 0x0 */
        /*0090*/    STG.E desc[UR4][R2.64], R8 ;   /* 0x0 */
        /*00a0*/    @!P0 BRA 0x10 ;   /* 0x0 */
        /*00b0*/    EXIT ;   /* 0x0 */
        /*00c0*/    EXIT ;   /* 0x0 */
        /*00d0*/    CALL.REL.NOINC 0xf0 ;   /* 0x0 */
        /*00e0*/    BRA 0x90 ;   /* 0x0 */
        /*00f0*/    RET.REL.NODEC R20 0x0 ;   /* 0x0 */
"""
# As sm_80 has it: out of the loop by a call that never comes back, then the way round.
LEFT_BY_CALL = """
    Function : pleat_encode_float32_4
        /*0000*/    LDG.E.128 R4, [R2.64] ;   /* 0x0 */
        /*0010*/    IMAD.WIDE.U32 R8, R9, -0x326172a9, RZ ;   /* 0x0 */
        /*0020*/    ISETP.GE.U32.AND P0, PT, R0, R3, PT ;   /* 0x0 */
        /*0030*/    @P0 CALL.REL.NOINC 0x50 ;   /* 0x0 */
        /*0040*/    BRA 0x0 ;   /* 0x0 */
        /*0050*/    EXIT ;   /* 0x0 */
"""
# Two places with Philox, the second a way of its own and longer.
TWO_WAYS = """
    Function : pleat_encode_float32_4
        /*0000*/    LDG.E.128 R4, [R2.64] ;   /* 0x0 */
        /*0010*/    @P0 BRA 0x40 ;   /* 0x0 */
        /*0020*/    IMAD.WIDE.U32 R8, R9, -0x326172a9, RZ ;   /* 0x0 */
        /*0030*/    BRA 0x60 ;   /* 0x0 */
        /*0040*/    FSEL R8, R9, RZ, P0 ;   /* 0x0 */
        /*0050*/    IMAD.WIDE.U32 R8, R9, -0x326172a9, RZ ;   /* 0x0 */
        /*0058*/    FADD R8, R9, RZ ;   /* 0x0 */
        /*0060*/    @!P1 BRA 0x0 ;   /* 0x0 */
        /*0070*/    EXIT ;   /* 0x0 */
"""


def turns(tool, listing, wide=1, philox=1):
    (code,) = tool.parse(listing).values()
    found = tool.turns(code, encode=True, wide_accesses=wide, least_multiplications=philox)
    return [[tool.operation(text) for text in turn] for turn in found]


def test_the_shortest_turn_is_counted(tool):
    # 10, 20, 40, 50, 60, 70, 80, 90, a0: the branch over 30 is shorter, d0 ends in a call
    assert turns(tool, LISTING) == [["ISETP", "BRA", "LDG", "BRA", "BRA", "IMAD", "FADD", "STG", "BRA"]]


def test_a_call_that_is_not_made_does_not_end_the_way(tool):
    assert turns(tool, LEFT_BY_CALL) == [["LDG", "IMAD", "ISETP", "CALL", "BRA"]]


def test_every_place_with_philox_is_a_way(tool):
    short, long = turns(tool, TWO_WAYS)
    assert short == ["LDG", "BRA", "IMAD", "BRA", "BRA"]
    assert long == ["LDG", "BRA", "FSEL", "IMAD", "FADD", "BRA"]


@pytest.mark.parametrize(
    ("listing", "wide", "philox", "words"),
    [
        (LISTING.replace("-0x2daee0ad", "0x11"), 1, 1, "no loop"),
        (LISTING, 1, 2, "no loop"),  # half of the noise
        (LISTING, 2, 1, "1 accesses of 128 bits in a turn instead of 2"),
        (LISTING.replace("FADD R1, R2, R3", "@P2 BRA 0x80"), 1, 1, "a loop within"),
    ],
)
def test_what_would_be_counted_too_low_is_refused(tool, listing, wide, philox, words):
    with pytest.raises(tool.NotCounted, match=words):
        turns(tool, listing, wide, philox)


def test_only_kernels_that_are_covered_are_counted(tool):
    (code,) = tool.parse(LISTING).values()
    for name in ("encode_scaled_float32_2", "decode_framed_float32", "encode_in_place_float32_4", "encode_float32_0"):
        with pytest.raises(tool.NotCounted, match="not covered"):
            tool.turns_of("pleat_" + name, code)


def test_help_says_how_it_counts_and_what_not():
    text = subprocess.run([sys.executable, TOOL, "--help"], capture_output=True, text=True, check=True).stdout
    for words in ("How it counts", "held to at 4 bits", "encode_scaled_*", "encode_framed_*", "encode_in_place_*"):
        assert words in text


# The built image.


@pytest.fixture(scope="module")
def image(tool, build_dir):
    path = build_dir / "compress" / "cuda" / "pleat_kernels.fatbin"
    if not path.exists():
        pytest.skip(f"no {path}: built where there is an nvcc")
    if tool.find_cuobjdump() is None:
        has_triton = any((build_dir / "venv" / "lib").glob("python3*/site-packages/triton"))
        (pytest.fail if IN_CI and has_triton else pytest.skip)("no cuobjdump: needs triton, as torch brings it along, or CUDA's")
    return path


@pytest.fixture(scope="module")
def architectures(build_dir):
    """What the image of this build is for: one of three a day where a test run has built it (tools/test.sh)."""
    cache = (build_dir / "CMakeCache.txt").read_text()
    return [f"sm_{number}" for number in re.search(r"^PLEAT_CUDA_ARCHITECTURES:\w+=(.+)$", cache, re.M)[1].split(";")]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_four_bits_stay_within_the_bars(image, architectures, architecture, tmp_path, tool, figures):
    if architecture not in architectures:
        pytest.skip(f"the image is built for {', '.join(architectures)}")
    kernels = [f"{way}_{kind}_4" for way in tool.BARS for kind in tool.ELEMENT_BYTES]
    options = [word for kernel in kernels for word in ("--kernel", kernel)]
    command = [sys.executable, TOOL, "--image", image, "--arch", architecture, *options, "--json", tmp_path / "counts.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    counts = json.loads((tmp_path / "counts.json").read_text())[architecture]
    assert set(counts) == set(kernels)
    for kernel, found in counts.items():
        ordinary, zero_kept = found["per_element"]
        figures.append(f"{architecture} {kernel}: {ordinary} instructions per element, {zero_kept} where zero is kept")
        assert ordinary <= tool.BARS[kernel.split("_")[0]], kernel
        assert ordinary > 8, f"{kernel}: fewer than Philox and the arithmetic take"


def test_the_image_holds_every_kernel_that_tasks_can_ask_for(image, architectures, tool, build_dir, tmp_path):
    names = tmp_path / "names"
    command = [build_dir / "bin" / "compress_cuda_test", "--gtest_filter=CudaImage.*"]
    subprocess.run(command, env=os.environ | {"PLEAT_TEST_KERNEL_NAMES": str(names)}, check=True, capture_output=True)
    asked = set(names.read_text().split())
    assert len(asked) > 100
    for architecture in architectures:
        assert asked <= set(tool.kernels_of(tool.find_cuobjdump(), image, architecture)), architecture


def test_every_kernel_of_the_image_is_covered_or_named_as_not(image, architectures, tool):
    excluded = [pattern for names in tool.NOT_COVERED for pattern in names.split(", ")]
    names = tool.kernels_of(tool.find_cuobjdump(), image, architectures[0])
    assert len(names) > 60
    for name in names:
        named = any(pathlib.PurePath(name.removeprefix("pleat_")).match(pattern) for pattern in excluded)
        assert bool(tool.COVERED.fullmatch(name)) != named, name
