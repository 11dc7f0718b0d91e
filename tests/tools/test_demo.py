"""The demo on a few small steps: a stranger's first minute with Pleat."""

import re
import subprocess

import pytest

from conftest import clean_environment


@pytest.fixture
def demo(repository, build_dir, test_python, preload_library):
    def run(*arguments, **more):
        command = [test_python, repository / "tools" / "demo" / "demo.py", *map(str, arguments)]
        environment = clean_environment("LD_") | {"PLEAT_BUILD_DIR": str(build_dir)} | more
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    return run


def test_both_runs_end_in_a_table_and_two_pictures(demo, tmp_path):
    done = demo("--seconds", 1, "--batch", 8, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    steps = re.findall(r"(stock|pleat) +\S+ (\d+) steps in", done.stderr)
    assert [name for name, _ in steps] == ["stock", "pleat"]
    assert steps[0][1] == steps[1][1] and 1 <= int(steps[0][1]) < 120, steps  # Pleat's run is as long as stock's
    found = re.search(r"peak memory above the model +(\d+) MB +(\d+) MB +([\d.]+)x less", done.stdout)
    assert found and int(found[1]) > 1.5 * int(found[2]), done.stdout
    found = re.search(r"loss, mean of last 10 steps +([\d.]+) +([\d.]+)", done.stdout)
    assert found and abs(float(found[1]) - float(found[2])) < 0.02, done.stdout
    found = re.search(r"saved for backward, all steps .* ([\d.]+)x smaller", done.stdout)
    assert found and float(found[1]) > 6, done.stdout

    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "demo.html").read_text()
    assert "less memory" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=.?(https?:)?//", page), "the page needs a network"


@pytest.mark.parametrize("bad", [("--steps", "0"), ("--seconds", "nan"), ("--bits", "9"), ("--batch", "x")])
def test_bad_arguments_are_one_line(demo, bad):
    done = demo(*bad)
    assert done.returncode == 2
    assert bad[0] in done.stderr.splitlines()[-1], done.stderr


def test_a_run_that_pleat_stayed_out_of_is_no_result(demo, tmp_path):
    done = demo("--steps", 2, "--batch", 1, "--out", tmp_path, PLEAT_DISABLE="1")
    assert re.findall(r"(\d+) steps in", done.stderr) == ["2", "2"]  # as many as asked for
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("demo: Pleat was not active"), done.stderr
    assert not list(tmp_path.iterdir())
