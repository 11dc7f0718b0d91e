"""What decides which tests run, and the server that runs their scripts: neither may lose a sample or stand still."""

import datetime
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from draw import DAYS, Draw
from forked import ForkServer, close_all

FIRST = datetime.date(2026, 11, 26)


def day(n):
    return Draw((FIRST + datetime.timedelta(days=n)).isoformat())


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 99, 100, 1237])
@pytest.mark.parametrize("start", [0, 3, 400])
def test_as_many_days_in_a_row_as_a_set_asks_for_draw_every_sample(count, start):
    drawn = [day(start + n).samples("a set", count, days=3) for n in range(3)]
    assert set().union(*drawn) == set(range(count))
    assert {len(samples) for samples in drawn} == {-(-count // 3)}


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 99, 100, 1237])
@pytest.mark.parametrize("start", [0, 3, 400])
def test_ten_days_in_a_row_draw_every_sample(count, start):
    drawn = [day(start + n).samples("a set", count) for n in range(DAYS)]
    assert set().union(*drawn) == set(range(count))
    assert {len(samples) for samples in drawn} == {-(-count // 10)}  # a tenth, rounded up; never none
    assert all(samples == sorted(set(samples)) for samples in drawn)


def test_every_single_sample_has_its_day_of_ten():
    for name in (f"script {i}" for i in range(200)):
        assert sum(day(n).includes(name) for n in range(DAYS)) == 1


def test_a_draw_depends_on_the_date_and_the_name_alone():
    assert day(5).samples("a set", 500) == Draw("2026-12-01").samples("a set", 500)
    assert day(5).samples("a set", 500) != day(6).samples("a set", 500)
    assert day(5).samples("a set", 500) != day(5).samples("another", 500)


def test_all_draws_everything_in_order_and_a_day_shuffles_only_the_order():
    assert Draw("all").samples("a set", 37) == list(range(37))
    assert Draw("all").includes("anything")
    assert Draw("all").in_turn("fedcba") == list("fedcba")
    orders = {tuple(day(n).in_turn("fedcba")) for n in range(8)}
    assert len(orders) > 1 and all(sorted(order) == list("abcdef") for order in orders)


def test_the_environment_names_the_draw_and_the_end(monkeypatch):
    for name in ("PLEAT_TEST_DRAW", "PLEAT_TEST_UNTIL"):
        monkeypatch.delenv(name, raising=False)
    assert Draw.of_environment().everything and not Draw.of_environment().time_is_up()
    monkeypatch.setenv("PLEAT_TEST_DRAW", "2026-11-26")
    monkeypatch.setenv("PLEAT_TEST_UNTIL", str(time.time() + 60))
    assert not Draw.of_environment().everything and not Draw.of_environment().time_is_up()
    monkeypatch.setenv("PLEAT_TEST_UNTIL", str(time.time() - 1))
    assert Draw.of_environment().time_is_up()


ROTATING = """
    import pytest

    @pytest.fixture
    def what_draws_too(draw):
        pass

    @pytest.mark.rotating
    @pytest.mark.parametrize("n", range(20))
    def test_in_a_set(n, what_draws_too):
        print("ran", n)

    @pytest.mark.rotating
    def test_draws_itself(draw):
        print("ran", draw.samples("mine", 20))

    @pytest.mark.rotating(set="two tests")
    def test_one_of_two():
        print("ran one")

    @pytest.mark.rotating(set="two tests")
    def test_other_of_two():
        print("ran other")

    def test_fixed():
        print("ran fixed")
"""

THIRDS = """
    import pytest

    @pytest.mark.rotating(set="thirds", share=3)
    @pytest.mark.parametrize("n", range(20))
    def test_in_thirds(n):
        print("ran", n)
"""


def collected(tmp_path, repository, *args, source=ROTATING, exit_codes=(0, 5), **variables):
    (tmp_path / "test_some.py").write_text(textwrap.dedent(source))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    rotating: a tenth a day\n")
    environment = os.environ | {"PYTHONPATH": str(repository / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PLEAT_TEST_DRAW", None)
    environment.pop("PLEAT_TEST_UNTIL", None)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "rotating", "-rA", "--override-ini=testpaths=.", *args],
        cwd=tmp_path, env=environment | variables, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode in exit_codes, run.stdout + run.stderr
    return run.stdout + run.stderr


def test_a_day_runs_a_tenth_of_a_set_and_all_of_the_rest(tmp_path, repository):
    out = collected(tmp_path, repository, PLEAT_TEST_DRAW="2026-11-26")
    assert "5 passed, 19 deselected" in out  # 2 of 20, the one that draws itself, one of two, the fixed one
    assert "test_some.py::test_in_a_set: 2 of 20 tests" in out
    assert "\ntwo tests: 1 of 2 tests" in out
    assert "23 passed, 1 deselected" in collected(tmp_path, repository, "--part", "rotating", PLEAT_TEST_DRAW="all")
    assert "1 passed, 23 deselected" in collected(tmp_path, repository, "--part", "fixed")


def test_a_set_runs_the_share_of_a_day_that_it_names(tmp_path, repository):
    out = collected(tmp_path, repository, source=THIRDS, PLEAT_TEST_DRAW="2026-11-26")
    assert "7 passed, 13 deselected" in out and "thirds: 7 of 20 tests" in out
    assert "20 passed" in collected(tmp_path, repository, source=THIRDS, PLEAT_TEST_DRAW="all")


def test_a_set_with_two_shares_is_an_error(tmp_path, repository):
    source = THIRDS + THIRDS.replace("share=3", "share=5").replace("test_in_thirds", "test_in_fifths")
    out = collected(tmp_path, repository, source=source, exit_codes=[4], PLEAT_TEST_DRAW="2026-11-26")
    assert "one set, several shares: [3, 5]: thirds" in out


def test_nothing_of_the_rotating_part_starts_when_the_time_is_up(tmp_path, repository):
    out = collected(tmp_path, repository, PLEAT_TEST_DRAW="2026-11-26", PLEAT_TEST_UNTIL="1")
    assert "1 passed, 4 skipped" in out
    assert "test_some.py::test_in_a_set: 0 of 20 tests" in out


@pytest.fixture
def server_of(tmp_path):
    """ForkServers whose interpreter takes a stand-in for torch: what is tested is the server."""
    stand_ins = tmp_path / "stand_ins"
    (stand_ins / "torch" / "_dynamo").mkdir(parents=True)
    for file in ("pleat_test_support.py", "torch/__init__.py", "torch/_dynamo/__init__.py"):
        (stand_ins / file).touch()
    environment = os.environ | {"PYTHONPATH": str(stand_ins)}
    return lambda name: ForkServer(str(tmp_path / name), sys.executable, environment, tmp_path)


def test_workers_that_started_each_others_servers_all_come_to_an_end(server_of):
    # What two workers of pytest-xdist do that end at the same time: each waits for the server it started.
    mine = server_of("a")
    theirs = server_of("b")
    mine_at_theirs, theirs_at_mine = server_of("b"), server_of("a")
    assert mine_at_theirs.process is None and theirs_at_mine.process is None
    workers = [
        threading.Thread(target=close_all, args=([mine, mine_at_theirs],), daemon=True),
        threading.Thread(target=close_all, args=([theirs_at_mine, theirs],), daemon=True),
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    stuck = [worker for worker in workers if worker.is_alive()]
    for server in (mine, theirs):
        if server.process.poll() is None:
            server.process.kill()
    assert not stuck


def test_a_script_is_a_fork_with_its_own_output_code_and_time(server_of, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time\n"
        "print(sys.argv[1:], os.environ['OF_THIS'])\n"
        "end = time.process_time() + 0.2\n"
        "while time.process_time() < end: pass\n"
        "print('error', file=sys.stderr)\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    server, second = server_of("a"), server_of("a")
    try:
        for caller in (server, second):
            out, err, code, seconds = caller.run(script, [3, "x"], {"OF_THIS": "one"}, 60)
            assert (out, err, code) == (b"['3', 'x'] one\n", b"error\n", 3)
            assert 0.2 <= seconds < 5
        script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
        assert server.run(script, [], {}, 60)[2] == -signal.SIGSEGV
        script.write_text("import time\ntime.sleep(600)\n")
        assert second.run(script, [], {}, 0.5)[2] is None
        assert not server.ended and not second.ended
        server.process.kill()
        server.process.wait()
        assert server.ended and second.ended
    finally:
        close_all([server, second])
