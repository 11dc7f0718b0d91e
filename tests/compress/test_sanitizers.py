"""The fuzzers' corpus through every decoder and all parsers, and the allocator's units, under the address
and undefined-behaviour sanitizers. Builds all of them so (minutes), so it runs in CI and where it is asked for:
pytest tests -m sanitizer."""

import pytest

from conftest import REPOSITORY
from sanitized import build, run

pytestmark = [pytest.mark.sanitizer, pytest.mark.slow]

CORPUS = REPOSITORY / "tests" / "fuzz" / "corpus"
FUZZERS = {name: folder for folder in sorted(CORPUS.iterdir())
           for name in (folder.name, f"device_{folder.name}")
           if name not in {"device_block", "device_options", "device_profile", "device_trace",
                          "device_name"}}  # fmt: skip
# Leaks are not looked for: containers may forbid the tracing that takes.
STRICT = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=0"}


@pytest.fixture(scope="module")
def programs(build_dir):
    return build(build_dir / "asan", "asan", "fuzzers", "allocator_test")


@pytest.mark.parametrize("name", FUZZERS)
def test_the_corpus(programs, name):
    out = run([programs / f"fuzz_{name}", FUZZERS[name]], **STRICT)
    assert out == f"{len(list(FUZZERS[name].iterdir()))} inputs\n"


def test_the_allocators_units(programs):
    assert "  PASSED  " in run([programs / "allocator_test"], **STRICT)
