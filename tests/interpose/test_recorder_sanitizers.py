"""The recorder and its tests built with the thread sanitizer, and with those of addresses and of undefined behaviour."""

import pytest

from sanitized import at_fixed_addresses, build, run

pytestmark = [pytest.mark.sanitizer, pytest.mark.slow]


def test_no_data_race(build_dir):
    program = build(build_dir / "tsan", "tsan", "recorder_test") / "recorder_test"
    # The sanitizer does not follow fork(). A job that closes the recorder's file races with it: that is what the test is about.
    left_out = "--gtest_filter=-*HundredThousand*:*Fork*:*Killed*:*DiskThatIsFull*:*DescriptorThatTheJobCloses*"
    out = run([*at_fixed_addresses(), program, left_out], TSAN_OPTIONS="halt_on_error=1")
    assert "[       OK ] Recorder.TracesBeginAndEndWhileThreadsHaveEvents" in out
    assert "[       OK ] Recorder.ThreadsNameThingsWhileTheWriterWritesThem" in out
    assert "WARNING: ThreadSanitizer" not in out


def test_no_memory_error(build_dir):
    program = build(build_dir / "asan", "asan", "recorder_test") / "recorder_test"
    strict = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=0"}
    assert "  PASSED  " in run([program, "--gtest_filter=-*Killed*"], **strict)
