"""The allocator's unit tests built with the thread sanitizer: among them a release that races unpack and drop."""

import platform
import shutil
import subprocess

import pytest

from sanitized import build, run


@pytest.mark.sanitizer
def test_no_data_race(build_dir):
    programs = build(build_dir / "tsan", "tsan", "allocator_test")
    # Without address randomisation: the sanitizer of GCC 12 does not know where newer kernels map things.
    fixed = ["setarch", platform.machine(), "--addr-no-randomize"] if shutil.which("setarch") else []
    if fixed and subprocess.run([*fixed, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        fixed = []  # containers may forbid it
    # fork() beside running threads is what the sanitizer does not follow.
    out = run([*fixed, programs / "allocator_test", "--gtest_filter=-*.*Fork*"], TSAN_OPTIONS="halt_on_error=1")
    assert "[       OK ] ResidencyTest.ReleaseRacingUnpackReturnsTheBytes" in out
    assert "WARNING: ThreadSanitizer" not in out
