"""The allocator's unit tests built with the thread sanitizer: among them a release that races unpack and drop."""

import pytest

from sanitized import at_fixed_addresses, build, run


@pytest.mark.sanitizer
def test_no_data_race(build_dir):
    programs = build(build_dir / "tsan", "tsan", "allocator_test")
    # The sanitizer does not follow fork() next to running threads.
    out = run([*at_fixed_addresses(), programs / "allocator_test", "--gtest_filter=-*.*Fork*"], TSAN_OPTIONS="halt_on_error=1")
    assert "[       OK ] ResidencyTest.ReleaseRacingUnpackReturnsTheBytes" in out
    assert "WARNING: ThreadSanitizer" not in out
