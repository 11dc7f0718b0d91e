"""`pleat trace diff`: what grew and what shrank between two traces that are known to the byte."""

import json

import pytest

from recorded_trace import pleat  # noqa: F401  a fixture
from traces_by_hand import ALLOCATE, simple_trace, write_trace

MIB = 1 << 20
BEFORE = [
    (4 * MIB, "aten::mul", "forward", 10),
    (1 * MIB, "aten::add", "forward", 12),
    (2 * MIB, "aten::mul", "forward", 14),
    (3 * MIB, "aten::exp", "only_before", 40),
]
# Two lines more above; what line 12 did is twice as large; one function went, one came.
AFTER = [
    (4 * MIB, "aten::mul", "forward", 12),
    (2 * MIB, "aten::add", "forward", 14),
    (2 * MIB, "aten::mul", "forward", 16),
    (5 * MIB, "aten::sin", "only_after", 50),
]


@pytest.fixture
def before(tmp_path):
    return simple_trace(tmp_path / "before.trace", BEFORE)


@pytest.fixture
def after(tmp_path):
    return simple_trace(tmp_path / "after.trace", AFTER, file="/you/checkout/train.py")


@pytest.fixture
def diff(pleat):
    def call(a, b, *arguments):
        done = pleat("diff", "--json", *arguments, a, b)
        assert done.returncode == 0 and done.stderr == b"", done.stderr
        return json.loads(done.stdout)

    return call


def sides(row):
    return row["op"], row["a"] and row["a"]["bytes"], row["b"] and row["b"]["bytes"]


def test_lines_that_moved_are_the_same_lines(diff, before, after):
    (host,) = diff(before, after)["devices"]
    assert host["peaks"]["live_bytes"] == {"a": 10 * MIB, "b": 13 * MIB, "change": 3 * MIB}
    grew, shrank = host["by_line"]["grew"], host["by_line"]["shrank"]
    assert [sides(row) for row in grew] == [("aten::sin", None, 5 * MIB), ("aten::add", MIB, 2 * MIB)]
    assert [sides(row) for row in shrank] == [("aten::exp", 3 * MIB, None)]
    assert grew[1]["a"]["line"] == "/me/train.py:12 forward"
    assert grew[1]["b"]["line"] == "/you/checkout/train.py:14 forward"


def test_every_byte_is_in_one_row(diff, before, after):
    (host,) = diff(before, after)["devices"]
    for table in (host["by_line"], host["by_operator"]):
        assert sum(row["change_bytes"] for row in table["grew"] + table["shrank"]) == 3 * MIB
    classes = {name: figures for name, figures in host["made_of"].items() if name != "live_bytes"}
    for side in "ab":
        assert sum(figures[side] for figures in classes.values()) == host["made_of"]["live_bytes"][side]
    assert host["listed_bytes"] == {"a": 10 * MIB, "b": 13 * MIB, "change": 3 * MIB}


def test_operators_are_matched_by_name(diff, before, after):
    (host,) = diff(before, after)["devices"]
    operators = host["by_operator"]
    assert [sides(row) for row in operators["grew"]] == [("aten::sin", None, 5 * MIB), ("aten::add", MIB, 2 * MIB)]
    assert [sides(row) for row in operators["shrank"]] == [("aten::exp", 3 * MIB, None)]


def test_a_trace_does_not_differ_from_itself(diff, before):
    (host,) = diff(before, before)["devices"]
    for table in (host["by_line"], host["by_operator"]):
        assert table == {"grew": [], "shrank": []}
    assert all(figures["change"] == 0 for figures in (host["peaks"] | host["made_of"] | host["saved"]).values())


def test_the_tables_of_text(pleat, before, after):
    done = pleat("diff", before, after)
    assert done.returncode == 0 and done.stderr == b""
    text = done.stdout.decode()
    grew, shrank = text.index("host, what grew, by line"), text.index("host, what shrank, by line")
    lines = [line.split() for line in text[grew:shrank].splitlines()]
    assert lines[2][:3] == ["+5.00", "MiB", "-"] and lines[2][-1] == "new"
    assert lines[3][:6] == ["+1.00", "MiB", "1.00", "MiB", "2.00", "MiB"]
    assert "train.py:14 forward (A: 12)" in text[grew:shrank]
    assert text[shrank:].splitlines()[2].split()[-1] == "gone"


def test_growth_beyond_a_limit_is_exit_code_3(pleat, before, after):
    for limit, code in [("3MiB", 0), ("2.9MiB", 3), ("30%", 0), ("29.9%", 3), ("0", 3)]:
        done = pleat("diff", "--max-growth", limit, before, after)
        assert done.returncode == code, limit
        assert done.stderr.count(b"\n") == (code == 3)
    assert b"13.00 MiB against 10.00 MiB is over --max-growth 29.9%" in pleat("diff", "--max-growth", "29.9%", before, after).stderr
    assert pleat("diff", "--max-growth", "0", after, before).returncode == 0  # it shrank
    assert pleat("diff", "--max-growth", "0", "--op", "mul", before, after).returncode == 0  # these did not grow


def test_filters_and_rows(diff, before, after):
    (host,) = diff(before, after, "--op", "add")["devices"]
    assert [sides(row) for row in host["by_line"]["grew"]] == [("aten::add", MIB, 2 * MIB)]
    assert host["by_line"]["shrank"] == []
    (host,) = diff(before, after, "--top", "1")["devices"]
    assert [sides(row) for row in host["by_line"]["grew"]] == [("aten::sin", None, 5 * MIB)]
    (host,) = diff(before, after, "--at", "0.0015")["devices"]  # after two blocks each
    assert host["made_of"]["live_bytes"] == {"a": 5 * MIB, "b": 6 * MIB, "change": MIB}


def test_a_device_that_one_trace_does_not_have(diff, pleat, before, tmp_path):
    event = dict(time=2000, kind=ALLOCATE, device=2, bytes=MIB, block=1, op=1, change={16: MIB})
    other = write_trace(tmp_path / "other.trace", [event], ["aten::mul"], [], [])
    host, cuda = diff(before, other)["devices"]
    assert host["peaks"]["live_bytes"] == {"a": 10 * MIB, "b": None, "change": -10 * MIB}
    assert [sides(row) for row in cuda["by_line"]["grew"]] == [("aten::mul", None, MIB)]
    text = pleat("diff", before, other).stdout.decode()
    assert "cuda:1: A knows nothing of it; B at" in text
    assert [row["device"] for row in diff(before, other, "--device", "cuda:1")["devices"]] == ["cuda:1"]


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["{a}", "absent.trace"], b"absent.trace: No such file"),
        (["{a}"], b"B is required"),
        (["--at", "oom", "{a}", "{b}"], b"before.trace: host: memory never ran out"),
        (["--device", "cuda:3", "{a}", "{b}"], b"has nothing of cuda:3"),
        (["--max-growth", "much", "{a}", "{b}"], b"'much': allowed are sizes like 64MiB, and 2%"),
        (["--max-growth", "-2%", "{a}", "{b}"], b"'-2%': allowed are"),
    ],
)
def test_trouble_is_exit_code_2_and_one_line(pleat, before, after, tmp_path, arguments, complaint):
    done = pleat("diff", *[word.format(a=before.name, b=after.name) for word in arguments], cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == b""
    assert complaint in done.stderr and done.stderr.count(b"\n") == 1


def test_names_from_a_file_cannot_steer_a_terminal(pleat, before, tmp_path):
    odd = simple_trace(tmp_path / "odd.trace", [(MIB, "\x1b[31mred\n", "a\rb", 1)])
    done = pleat("diff", before, odd)
    assert done.returncode == 0 and not set(done.stdout) & {0x1B, 0x0D}
