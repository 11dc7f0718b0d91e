"""The fuzzers' corpus through every decoder and all parsers, and the allocator's units, under the address
and undefined-behaviour sanitizers. Builds all of them so (minutes), so it runs in CI and where it is asked for:
pytest tests -m sanitizer."""

import tarfile

import pytest

from conftest import REPOSITORY
from sanitized import build, run

pytestmark = [pytest.mark.sanitizer, pytest.mark.slow]

CORPUS = REPOSITORY / "tests" / "fuzz" / "corpus"
TARGETS = sorted({path.name.removesuffix(".tar.gz") for path in CORPUS.iterdir()})
ON_DEVICE = ("framed", "grouped", "packed", "payload")
# Leaks are not looked for: containers may forbid the tracing that takes.
STRICT = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=0"}


@pytest.fixture(scope="module")
def programs(build_dir):
    return build(build_dir / "asan", "asan", "fuzzers", "allocator_test")


@pytest.mark.parametrize("target", [*TARGETS, *(f"device_{name}" for name in ON_DEVICE)])
def test_the_corpus(programs, target, tmp_path):
    """A named seed is a file of the folder. Inputs that the fuzzer found are in the archive of the same name."""
    name = target.removeprefix("device_")
    folder, archive = CORPUS / name, CORPUS / f"{name}.tar.gz"
    seeds = len(list(folder.iterdir())) if folder.exists() else 0
    found = 0
    if archive.exists():
        with tarfile.open(archive) as inputs:
            for member in inputs.getmembers():
                (tmp_path / member.name).write_bytes(inputs.extractfile(member).read())
                found += 1
    folders = [path for path, count in ((folder, seeds), (tmp_path, found)) if count]
    assert run([programs / f"fuzz_{target}", *folders], **STRICT) == f"{seeds + found} inputs\n"


def test_the_allocators_units(programs):
    assert "  PASSED  " in run([programs / "allocator_test"], **STRICT)
