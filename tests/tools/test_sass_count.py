"""The built CUDA image keeps the bars of tools/bench/sass_count.py, and holds each kernel that tasks can ask for."""

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
    """The architectures of this build's image: one of three a day where a test run has built it (tools/test.sh)."""
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
