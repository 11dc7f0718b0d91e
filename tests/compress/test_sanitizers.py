"""The fuzzers' corpus through every decoder, and the allocator's units, under the address and undefined-behaviour
sanitizers. Builds both with them (minutes), so it runs in CI and where it is asked for: pytest tests -m sanitizer."""

import pytest

from conftest import REPOSITORY
from sanitized import build, run

pytestmark = [pytest.mark.sanitizer, pytest.mark.slow]

CORPUS = REPOSITORY / "tests" / "fuzz" / "corpus"
SHAPES = sorted(folder.name for folder in CORPUS.iterdir())
# Leaks are not looked for: containers may forbid the tracing that takes.
STRICT = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=0"}


@pytest.fixture(scope="module")
def programs(build_dir):
    return build(build_dir / "asan", "asan", "fuzzers", "allocator_test")


@pytest.mark.parametrize("shape", [*SHAPES, *(f"device_{shape}" for shape in SHAPES if shape != "block")])
def test_the_corpus(programs, shape):
    fuzzer, shape = programs / f"fuzz_{shape}", shape.removeprefix("device_")
    out = run([fuzzer, CORPUS / shape], **STRICT)
    assert out == f"{len(list((CORPUS / shape).iterdir()))} inputs\n"


def test_the_allocators_units(programs):
    assert "  PASSED  " in run([programs / "allocator_test"], **STRICT)
