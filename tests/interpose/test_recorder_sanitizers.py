"""The recorder and its tests built with the thread sanitizer, and with those of addresses and of undefined behaviour."""

import pytest

from sanitized import at_fixed_addresses, build, run

pytestmark = [pytest.mark.sanitizer, pytest.mark.slow]


def test_no_data_race(build_dir):
    folder = build(build_dir / "tsan", "tsan", "recorder_test", "recorder_parts_test")
    # The sanitizer does not follow fork(). A job that closes the recorder's file races with it: that is what the test is about.
    left_out = "--gtest_filter=-*HundredThousand*:*Fork*:*Killed*:*DiskThatIsFull*:*DescriptorThatTheJobCloses*"
    must_run = {
        "recorder_test": ["Recorder.TracesBeginAndEndWhileThreadsHaveEvents", "Recorder.ThreadsNameThingsWhileTheWriterWritesThem"],
        "recorder_parts_test": ["RecorderParts.TheLastPartKnowsWhatAWholeTraceKnows"],
    }
    for program, tests in must_run.items():
        out = run([*at_fixed_addresses(), folder / program, left_out], TSAN_OPTIONS="halt_on_error=1")
        for test in tests:
            assert f"[       OK ] {test}" in out
        assert "WARNING: ThreadSanitizer" not in out


def test_no_memory_error(build_dir):
    folder = build(build_dir / "asan", "asan", "recorder_test", "recorder_parts_test")
    strict = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=0"}
    for program in ("recorder_test", "recorder_parts_test"):
        assert "  PASSED  " in run([folder / program, "--gtest_filter=-*Killed*"], **strict)
