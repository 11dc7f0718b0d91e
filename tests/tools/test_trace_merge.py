"""`pleat trace merge`: ranks side by side, on one time base, by traces that are known to the byte."""

import json
import os

import pytest

from recorded_trace import pleat, timeline_of  # noqa: F401  a fixture
from traces_by_hand import ACTIVE, ALLOCATE, FREE, REQUESTED, RESERVED, simple_trace, write_trace

MIB, MS = 1 << 20, 1_000_000
WALL = 10**18


def rank(folder, number, *megabytes, of=2, wall_ms=0, monotonic=1000, pid=None, **more):
    """A block each millisecond; the trace begins `wall_ms` after the first."""
    name = folder / f"run.rank{number}.{pid or 'own'}.trace"
    blocks = [(size * MIB, "aten::mul", "main", 1 + i) for i, size in enumerate(megabytes)]
    who = dict(rank=number, world_size=of, pid=pid or 100 + number, start_wall_ns=WALL + int(wall_ms * MS))
    return simple_trace(name, blocks, start_ns=monotonic, **(who | more))


def part(path, number, events, **who):
    """Of a trace of bounded size; events are a time in ms, a block, and its bytes: below 0 it is freed."""
    made = []
    for ms, block, bytes in events:
        change = {kind: bytes for kind in (REQUESTED, ACTIVE, RESERVED)}
        kind = ALLOCATE if bytes > 0 else FREE
        made.append(dict(time=1000 + ms * MS, kind=kind, thread=9, block=block, bytes=abs(bytes), op=1, change=change))
    process = {"pid": 100, "start_ns": 1000, "start_wall_ns": WALL, "host": "here", "rank": 0, "world_size": 2} | who
    return write_trace(path, made, ["aten::mul"], process=process | ({"part": number} if number > 1 else {}))


def parts(folder):
    """2 and 3 MiB, which the second part tells once more at 3 ms; then 3 go, and 1 comes."""
    former = part(folder / "run.rank0.trace.1", 1, [(1, 1, 2 * MIB), (2, 2, 3 * MIB)])
    later = [(3, 1, 2 * MIB), (3, 2, 3 * MIB), (5, 2, -3 * MIB), (6, 3, MIB)]
    return former, part(folder / "run.rank0.trace", 2, later)


@pytest.fixture
def merge(pleat):
    def call(*arguments):
        done = pleat("merge", "--json", *arguments)
        assert done.returncode == 0 and done.stderr == b"", done.stderr
        return json.loads(done.stdout)

    return call


def test_ranks_are_in_order_whatever_their_files_are(merge, pleat, tmp_path):
    second, first = rank(tmp_path, 1, 3, 4), rank(tmp_path, 0, 1, 2)
    merged = merge(second, first)
    assert [one["process"]["rank"] for one in merged["ranks"]] == [0, 1]
    assert [one["devices"][0]["peak_live_bytes"] for one in merged["ranks"]] == [3 * MIB, 7 * MIB]
    assert (merged["world_size"], merged["missing"]) == (2, None)
    text = pleat("merge", second, first).stdout.decode()
    assert text.startswith("2 ranks on 1 host\n")
    assert "host: peaks from 3.00 MiB (rank 0) to 7.00 MiB (rank 1)" in text
    assert merge(tmp_path) == merged  # a folder is its traces


def test_what_ranks_of_a_host_hold_together(merge, pleat, tmp_path):
    """Rank 0 holds 2 MiB at 1 ms, 3 at 2 ms, 2 at 3 ms, 0 at 4 ms; rank 1 begins 2.6 ms later with 5 MiB."""
    rank(tmp_path, 0, 2, 1)
    rank(tmp_path, 1, 5, wall_ms=2.6, monotonic=1000 + int(2.6 * MS))
    merged = merge(tmp_path)
    (together,) = merged["together"]
    assert together["host"] == "here" and together["live_bytes"] == 7 * MIB
    assert together["seconds"] == pytest.approx(0.0036)
    assert [one["bytes"] for one in together["processes"]] == [2 * MIB, 5 * MIB]
    assert merged["ranks"][1]["begins_seconds"] == pytest.approx(0.0026)
    assert merged["ranks"][1]["devices"][0]["peak_seconds"] == pytest.approx(0.0036)
    assert "here: its 2 processes together at most 7.00 MiB, at 0.004 s: rank 0 2.00 MiB, rank 1 5.00 MiB" in pleat("merge", tmp_path).stdout.decode()


def test_the_monotonic_clock_counts_on_one_host_and_the_wall_clock_between_hosts(merge, tmp_path):
    # The wall clock of rank 1 is 300 ms ahead of what the clock of its host says.
    rank(tmp_path, 0, 1, of=3, monotonic=50_000 * MS)
    rank(tmp_path, 1, 1, of=3, monotonic=50_100 * MS, wall_ms=400)
    rank(tmp_path, 2, 1, of=3, monotonic=7 * MS, wall_ms=250, host="there")
    begins = [one["begins_seconds"] for one in merge(tmp_path)["ranks"]]
    assert begins == pytest.approx([0, 0.1, 0.25])
    # Both hosts call themselves the same: their clocks are too far apart to be one.
    rank(tmp_path, 2, 1, of=3, monotonic=7 * MS, wall_ms=250)
    assert [one["begins_seconds"] for one in merge(tmp_path)["ranks"]] == pytest.approx([0, 0.1, 0.25])


def test_a_rank_without_a_wall_clock_begins_with_the_job(merge, pleat, tmp_path):
    rank(tmp_path, 0, 1, monotonic=50 * MS)
    rank(tmp_path, 1, 1, monotonic=70 * MS, start_wall_ns=0)
    second = merge(tmp_path)["ranks"][1]
    assert second["begins_seconds"] is None
    assert second["devices"][0]["peak_seconds"] == pytest.approx(0.001)
    assert "no wall clock" in pleat("merge", tmp_path).stdout.decode()


def test_the_parts_of_a_trace_are_one_process(merge, pleat, tmp_path):
    former, later = parts(tmp_path)
    part(tmp_path / "run.rank1.trace", 1, [(1, 1, MIB), (4, 2, 4 * MIB), (7, 2, -4 * MIB)], rank=1, pid=101)
    merged = merge(tmp_path)
    assert [one["process"]["rank"] for one in merged["ranks"]] == [0, 1]
    rank0 = merged["ranks"][0]
    assert rank0["parts"] == [str(former), str(later)] and rank0["file"] == str(later)
    (device,) = rank0["devices"]
    assert (device["peak_live_bytes"], device["peak_seconds"]) == (5 * MIB, pytest.approx(0.002))
    assert (rank0["begins_seconds"], rank0["seconds"]) == (0, pytest.approx(0.006))
    (together,) = merged["together"]
    assert (together["live_bytes"], together["seconds"]) == (10 * MIB, pytest.approx(0.004))
    assert [one["bytes"] for one in together["processes"]] == [5 * MIB, 5 * MIB]
    assert merge(later, tmp_path / "run.rank1.trace", former) == merged
    text = pleat("merge", tmp_path).stdout.decode()
    assert text.startswith("2 ranks on 1 host\n") and "from part" not in text
    former.unlink()
    assert "from part 2 on" in pleat("merge", tmp_path).stdout.decode()


def test_parts_between_which_one_is_missing_are_no_trace(pleat, tmp_path):
    former, later = parts(tmp_path)
    part(later, 4, [(9, 1, MIB)])
    done = pleat("merge", "--allow-missing", later, former, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == b"" and done.stderr.count(b"\n") == 1
    assert b": is part 4 of a trace, and " in done.stderr and b" is part 1: what came between is missing" in done.stderr


def test_what_a_rank_has_between_two_of_its_parts_and_where_reading_stops(merge, tmp_path):
    parts(tmp_path)
    part(tmp_path / "run.rank0.trace", 2, [(9, 1, 2 * MIB), (9, 2, 3 * MIB)])
    part(tmp_path / "run.rank1.trace", 1, [(1, 1, MIB), (4, 2, 4 * MIB), (7, 2, -4 * MIB)], rank=1, pid=101)
    (together,) = merge(tmp_path)["together"]
    assert (together["live_bytes"], [one["bytes"] for one in together["processes"]]) == (10 * MIB, [5 * MIB, 5 * MIB])
    (together,) = merge("--max-events", "1", tmp_path)["together"]  # of each part
    assert (together["live_bytes"], [one["bytes"] for one in together["processes"]]) == (3 * MIB, [2 * MIB, MIB])


def test_a_part_that_is_there_twice_is_refused(pleat, tmp_path):
    former, later = parts(tmp_path)
    again = tmp_path / "again.trace"
    again.write_bytes(former.read_bytes())
    done = pleat("merge", again, former, later)
    assert done.returncode == 2 and done.stdout == b"" and done.stderr.count(b"\n") == 1
    assert b": is of the same trace as " in done.stderr


def test_a_timeline_goes_on_with_the_next_part(pleat, tmp_path):
    former, later = parts(tmp_path)
    out = pleat("merge", "--allow-missing", "-o", "-", former, later).stdout
    timeline = timeline_of(out)
    assert timeline.sequences == {1}
    processes = {t.process.pid for t in timeline.tracks.values() if t.HasField("process")}
    assert processes == {100}
    live = [(at - 1000, bytes) for at, bytes in timeline.counters["host live"]]
    assert live[:2] == [(MS, 2 * MIB), (2 * MS, 5 * MIB)] and live[-2:] == [(5 * MS, 2 * MIB), (6 * MS, 3 * MIB)]


def test_other_processes_of_a_rank_stand_below_it(merge, pleat, tmp_path):
    rank(tmp_path, 0, 1, 1, of=1)
    rank(tmp_path, 0, 4, of=1, pid=50, wall_ms=2, monotonic=1000 + 2 * MS)  # began while the rank's own ran
    rank(tmp_path, -1, 2, of=-1, pid=70)  # a launcher
    merged = merge(tmp_path)
    assert [(one["process"]["pid"], one["is_helper"]) for one in merged["ranks"]] == [(100, False), (50, True), (70, False)]
    assert pleat("merge", tmp_path).stdout.startswith(b"1 rank and 2 processes beside them on 1 host\n")


@pytest.mark.parametrize(
    "ranks, complaint",
    [
        ([dict(number=1, of=9), dict(number=4, of=9), dict(number=5, of=9)], b"of 9 ranks these are missing: 0, 2, 3, 6-8; --allow-missing"),
        ([dict(number=0, of=2**30)], b"these are missing: 1-1073741823;"),
        ([dict(number=0), dict(number=1), dict(number=1, pid=7, wall_ms=5000, monotonic=5000 * MS)], b": is of rank 1, and so is "),
        ([dict(number=0), dict(number=1, of=3)], b": is of a job of 3, and "),
        ([dict(number=3, of=2)], b": is of rank 3 of 2\n"),
    ],
)
def test_ranks_that_are_missing_or_too_many(pleat, tmp_path, ranks, complaint):
    for one in ranks:
        rank(tmp_path, one.pop("number"), 1, **one)
    done = pleat("merge", "-o", tmp_path / "job.pftrace", tmp_path)
    assert done.returncode == 2 and done.stdout == b"" and not (tmp_path / "job.pftrace").exists()
    assert complaint in done.stderr and done.stderr.count(b"\n") == 1
    if b"missing" in complaint:
        going_on = pleat("merge", "--allow-missing", tmp_path)
        assert going_on.returncode == 0 and b"missing: " in going_on.stdout.splitlines()[0]


def test_trouble_is_exit_code_2_and_one_line(pleat, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    trace = rank(tmp_path, 0, 1, of=1)
    (tmp_path / "other" / "x.trace").write_text("no trace\n")
    for arguments, complaint in [
        ([], b"FILE is required"),
        (["absent"], b"No such file"),
        (["empty"], b"has no file that ends with .trace"),
        (["other"], b"other/x.trace: this is no trace"),
        ([trace, "-o", trace, "--force"], b"is one of the traces"),
        ([trace, "-o", "other/x.trace"], b"exists; --force replaces it"),
        ([trace, trace], b": is of the same trace as "),
    ]:
        done = pleat("merge", *arguments, cwd=tmp_path)  # messages cut long paths
        assert done.returncode == 2 and done.stdout == b"", arguments
        assert complaint in done.stderr and done.stderr.count(b"\n") == 1
    assert trace.exists()


def test_one_timeline_of_all_ranks(pleat, tmp_path):
    # Both hosts have a process 100, whose clocks have nothing to do with each other.
    rank(tmp_path, 0, 1, 2, of=2, monotonic=50_000 * MS)
    rank(tmp_path, 1, 4, 1, of=2, monotonic=9 * MS, wall_ms=30, pid=100, host="there")
    out = tmp_path / "job.pftrace"
    done = pleat("merge", "-o", out, tmp_path)
    assert done.returncode == 0 and b"2 ranks on 2 hosts" in done.stdout
    assert os.stat(out).st_mode & 0o777 == 0o600
    ranks = [timeline_of(out.read_bytes(), number) for number in (1, 2)]
    assert ranks[0].sequences == {1, 2}
    processes = [[t.process for t in one.tracks.values() if t.HasField("process")] for one in ranks]
    names = [[(process.process_name, process.pid) for process in one] for one in processes]
    assert names == [[("rank 0 on here", 100)], [("rank 1 on there", 101)]]
    assert not set(ranks[0].tracks) & set(ranks[1].tracks)
    begin = 50_000 * MS
    assert ranks[0].counters["host live"][:2] == [(begin + MS, MIB), (begin + 2 * MS, 3 * MIB)]
    assert ranks[1].counters["host live"][:2] == [(begin + 31 * MS, 4 * MIB), (begin + 32 * MS, 5 * MIB)]
    assert [len(one.slices) for one in ranks] == [2, 2]
    late = pleat("merge", "-o", "-", "--since", "0.01", "--min-size", "2MiB", tmp_path)
    assert late.returncode == 0 and late.stderr == b""
    assert not timeline_of(late.stdout, 1).slices
    assert [one["bytes"] for one in timeline_of(late.stdout, 2).slices] == [4 * MIB]
