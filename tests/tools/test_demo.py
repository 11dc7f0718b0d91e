"""The demo on a few small steps: a stranger's first minute with Pleat."""

import re
import subprocess

import pytest

from conftest import STOCK_ONLY, clean_environment

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")


@pytest.fixture
def demo(repository, build_dir, test_python, preload_library):
    def run(*arguments, **more):
        command = [test_python, repository / "tools" / "demo" / "demo.py", *map(str, arguments)]
        environment = clean_environment("LD_") | {"PLEAT_BUILD_DIR": str(build_dir)} | more
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    return run


@pytest.mark.slow
@pytest.mark.rotating(set="long processes")
def test_both_runs_end_in_a_table_and_two_pictures(demo, tmp_path):
    done = demo("--steps", 100_000, "--seconds", 3, "--batch", 8, "--threads", 1, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "as many as stock does in 3 seconds" in done.stdout
    names, steps = zip(*re.findall(r"(stock|pleat) +\S+ (\d+) steps in", done.stderr))
    assert names == ("stock", "pleat")
    assert steps[0] == steps[1] and 2 <= int(steps[0]) < 100_000  # Pleat's run is as long as stock's

    peaks = re.search(r"peak memory above the model +(\d+) MB +(\d+) MB +([\d.]+)x less", done.stdout)
    assert peaks and int(peaks[1]) > 1.5 * int(peaks[2]), done.stdout
    losses = re.search(r"loss, mean of last \d+ steps +([\d.]+) +([\d.]+)", done.stdout)
    assert losses and abs(float(losses[1]) - float(losses[2])) < 0.01, done.stdout
    saved = re.search(r"saved for backward, all steps .* ([\d.]+)x smaller", done.stdout)
    assert saved and float(saved[1]) > 6, done.stdout

    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "demo.html").read_text()
    assert f"{peaks[3]}x less memory" in page and f"{steps[0]} steps of" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=.?(https?:)?//", page), "the page needs a network"


@pytest.mark.slow
@pytest.mark.rotating(set="long processes")
def test_a_run_that_pleat_stayed_out_of_is_no_result(demo, tmp_path):
    done = demo("--steps", 2, "--batch", 1, "--threads", 1, "--out", tmp_path, PLEAT_DISABLE="1")
    assert "stock does in" not in done.stdout  # whoever asks for steps gets them, however long they take
    assert re.findall(r"(\d+) steps in", done.stderr) == ["2", "2"]
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("demo: Pleat was not active"), done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bad", [("--steps", "0"), ("--seconds", "nan"), ("--bits", "9"), ("--batch", "x")])
def test_bad_arguments_are_named(demo, bad):
    done = demo(*bad)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("demo.py: error:") and bad[0] in last, done.stderr
