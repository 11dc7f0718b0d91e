"""The sources are as .clang-format says, by the version that setup installs."""

import pathlib
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
CLANG_FORMAT = pathlib.Path(sys.executable).with_name("clang-format")
SUFFIXES = {".c", ".cpp", ".cu", ".cuh", ".h"}


@pytest.mark.skipif(not CLANG_FORMAT.exists(), reason="tools/setup.sh test installs clang-format")
@pytest.mark.skipif(not (REPO / ".git").exists(), reason="not a clone: which files are sources?")
def test_sources_are_formatted():
    listed = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True)
    sources = [name for name in listed.stdout.splitlines() if pathlib.Path(name).suffix in SUFFIXES]
    assert len(sources) > 100
    done = subprocess.run([CLANG_FORMAT, "--dry-run", "--Werror", "--ferror-limit=3", *sources],
                          cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, f"clang-format -i mends these:\n{done.stderr[:4000]}"
