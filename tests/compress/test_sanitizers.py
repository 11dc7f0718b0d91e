"""The fuzzers' corpus through every decoder, and the allocator's units, under the address and undefined-behaviour
sanitizers. Builds both with them (minutes), so it runs in CI and where it is asked for: pytest tests -m sanitizer."""

import os
import shutil
import subprocess

import pytest

from conftest import REPOSITORY

pytestmark = [pytest.mark.sanitizer, pytest.mark.slow]

CORPUS = REPOSITORY / "tests" / "fuzz" / "corpus"
SHAPES = sorted(folder.name for folder in CORPUS.iterdir())
# Leaks are not looked for: containers may forbid the tracing that takes.
STRICT = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=0"}


def run(command, **variables):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env={**os.environ, **variables})
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout[-6000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def sanitized(build_dir):
    folder = build_dir / "asan"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run(["cmake", "-S", REPOSITORY, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
         "-DPLEAT_SANITIZE=address,undefined", "-DPLEAT_BUILD_BRIDGE=OFF", "-DPLEAT_BUILD_BENCHMARKS=OFF"])
    run(["cmake", "--build", folder, "--target", "fuzzers", "allocator_test", "--parallel", os.cpu_count()])
    return folder / "bin"


@pytest.mark.parametrize("device", ["", "device_"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_corpus(sanitized, shape, device):
    out = run([sanitized / f"fuzz_{device}{shape}", CORPUS / shape], **STRICT)
    assert out == f"{len(list((CORPUS / shape).iterdir()))} inputs\n"


def test_the_allocators_units(sanitized):
    assert "  PASSED  " in run([sanitized / "allocator_test"], **STRICT)
