"""What tools/test.sh and .ci/run are made of: a part that fails must be seen, and what it took counted."""

import subprocess

from conftest import REPOSITORY


def parts(script, **variables):
    return subprocess.run(
        ["bash", "-c", f"set -u\nsource {REPOSITORY}/tools/parts.sh\n{script}"],
        capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin"} | variables,
    )  # fmt: skip


def test_a_part_that_fails_fails_the_whole_and_is_named():
    done = parts("part good true; part bad sh -c 'echo it says so; exit 3'; part after true; summary CI")
    assert done.returncode == 1
    assert "it says so" in done.stdout
    lines = {line.split()[0]: line for line in done.stdout.partition("== CI")[2].splitlines()[1:]}
    assert lines["good"].endswith("passed") and lines["after"].endswith("passed")
    assert lines["bad"].endswith("FAILED (exit code 3)")


def test_parts_that_all_pass_pass_and_none_at_all_does_not():
    assert parts("part one true; part two true; summary CI").returncode == 0
    assert parts("summary CI").returncode == 1


def test_cpu_seconds_are_counted_of_what_nobody_waits_for_too():
    burn = "import time\\nwhile time.process_time() < 1.2: pass"
    done = parts(f"part alone sh -c \"(printf '{burn}' | python3 - >/dev/null 2>&1 &) ; true\"; summary CI")
    line = done.stdout.splitlines()[-1].split()
    assert done.returncode == 0 and line[0] == "alone" and 1 <= int(line[1]) <= 3, done.stdout


def test_the_last_line_of_a_test_runner_is_told_again():
    done = parts("part tests echo '=== 3 passed, 1 skipped in 2.00s ==='; summary CI")
    assert done.stdout.rstrip().endswith("=== 3 passed, 1 skipped in 2.00s ===")
    assert done.stdout.count("3 passed") == 2


def test_an_unbuilt_tree_gets_one_architecture_a_day_and_a_built_one_keeps_its_own(tmp_path):
    def chosen(day, **variables):
        return parts(f"choose_cuda_architectures {tmp_path} {day}; echo ${{PLEAT_CUDA_ARCHITECTURES:-none}}", **variables).stdout.strip()

    days = [f"2026-11-{day}" for day in range(20, 26)]
    assert {chosen(day) for day in days[:3]} == {"80", "90", "100"}
    assert [chosen(day) for day in days[:3]] == [chosen(day) for day in days[3:]]
    assert chosen("all") == "80;90;100"
    assert chosen("all", PLEAT_CUDA_ARCHITECTURES="90") == "90"
    (tmp_path / "CMakeCache.txt").write_text("PLEAT_CUDA_ARCHITECTURES:STRING=80\n")
    assert chosen(days[0]) == "none"  # set-up keeps it
