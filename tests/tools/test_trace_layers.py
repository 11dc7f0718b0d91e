"""Modules and groups in summary, report and snapshots; what was left alone; options that are refused."""

import pickle

import pytest

import browser
from recorded_trace import data_of, export, pleat, summary  # noqa: F401  fixtures
from traces_by_hand import ACTIVE, ALLOCATE, REQUESTED, TAG, write_trace

MODULE, LEFT = 71, 72
MIB = 1 << 20


@pytest.fixture
def layered(tmp_path):
    """The first layer saves 3 MiB, the second 1 MiB; 2 MiB are of no module; 5 MiB were left alone."""
    strings = ["aten::gelu", "forward", "/me/net.py", "main", "Net.first", "Net.second", "foreign storage"]
    events, blocks = [], iter(range(1, 100))

    def allocate(size, saved):
        block = next(blocks)
        where = dict(phase=1, block=block, address=block << 24, bytes=size, op=1, stack=2)
        events.append(dict(kind=ALLOCATE, **where, change={REQUESTED: size, ACTIVE: size}))
        if saved:
            events.append(dict(kind=TAG, record=block, **where))

    events.append(dict(kind=MODULE, op=5, bytes=2))
    allocate(3 * MIB, True)
    events.append(dict(kind=MODULE, op=6, bytes=2))
    allocate(MIB, True)
    events.append(dict(kind=MODULE))
    allocate(2 * MIB, False)
    events.append(dict(kind=LEFT, op=7, stack=2, bytes=5 * MIB))
    return write_trace(tmp_path / "layers.trace", events, strings)


def by(rows, key):
    return {row[key]: row for row in rows}


def test_the_summary_tells_what_each_module_retains(summary, layered):
    (host,) = summary(layered)["devices"]
    modules = by(host["modules"], "module")
    assert list(modules) == ["Net", "Net.first", "Net.second", None]
    assert modules["Net"]["retained_bytes"] == 4 * MIB and modules["Net"]["own"]["retained_bytes"] == 0
    assert modules["Net.first"]["own"]["retained_bytes"] == modules["Net.first"]["saved_in_step_bytes"] == 3 * MIB
    assert modules["Net"]["largest"] == {"bytes": 3 * MIB, "op": "aten::gelu", "line": "/me/net.py:12 forward"}
    assert modules[None]["live_bytes"] == 2 * MIB and modules[None]["retained_bytes"] == 0
    assert sum(row["own"]["live_bytes"] for row in host["modules"]) == host["moment"]["live_bytes"]
    assert host["groups"] is None


def test_the_text_is_a_tree(pleat, layered):
    lines = pleat("summary", layered).stdout.decode().splitlines()
    begin = lines.index("host, by module")
    table = lines[begin : begin + 6]
    assert table[1].split()[:2] == ["for", "backward"]
    first = table[1].index("module")
    assert [line[first : first + 12].rstrip() for line in table[2:]] == ["Net", "  first", "  second", "(in no modul"]
    assert "3.00 MiB" in table[3] and "aten::gelu, net.py:12 forward" in table[3]
    left = lines[lines.index("host, saved for backward and left alone, and why") + 2]
    assert left.split() == ["5.00", "MiB", "1", "foreign", "storage", "net.py:12", "forward"]


def test_depth_folds_what_lies_deeper(summary, layered):
    (host,) = summary(layered, "--depth", "1")["devices"]
    modules = by(host["modules"], "module")
    assert list(modules) == ["Net", None]
    assert modules["Net"]["own"]["retained_bytes"] == 4 * MIB


def test_groups_take_modules_then_lines(summary, layered):
    rules = ["--group", "one=first$", "--group", r"lines=net\.py", "--group", "none=xyz"]
    (host,) = summary(layered, *rules)["devices"]
    groups = by(host["groups"], "group")
    assert {name: group["live_bytes"] for name, group in groups.items()} == {
        "one": 3 * MIB,
        "lines": 2 * MIB,  # of no module
        "none": 0,
        "other": MIB,
    }
    assert groups["one"]["retained_bytes"] == 3 * MIB


def test_groups_are_categories_of_a_snapshot(export, layered):
    snapshot = pickle.loads(export(layered, "torch-snapshot.pickle", "--group", "one=first$"))
    sizes = {}
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                sizes[block["category"]] = sizes.get(block["category"], 0) + block["size"]
    assert sizes == {"one": 3 * MIB, "other": 3 * MIB}
    # The viewer needs it.
    assert [event["category"] for event in snapshot["device_traces"][0] if event["action"] == "snapshot"] == ["unknown"]


def test_the_report_has_them(pleat, layered, tmp_path):
    page = tmp_path / "page.html"
    done = pleat("report", "-o", page, "--group", "one=first$", layered)
    assert done.returncode == 0, done.stderr
    data = data_of(page.read_text())
    (host,) = data["devices"]
    texts = data["texts"]
    rows = [(texts[row["path"]], row["depth"], row["retained"]) for row in host["modules"]["rows"]]
    assert rows == [("Net", 1, 4 * MIB), ("Net.first", 2, 3 * MIB), ("Net.second", 2, MIB), ("", 0, 0)]
    assert [(texts[row["name"]], row["live"]) for row in host["groups"]] == [("one", 3 * MIB), ("other", 3 * MIB)]
    assert [(texts[row["why"]], row["tensors"], row["bytes"]) for row in host["left_alone"]] == [("foreign storage", 1, 5 * MIB)]


def test_the_page_draws_them(pleat, layered, tmp_path):
    path = browser.find()
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(browser.NAMES)} is installed")
    page = tmp_path / "page.html"
    assert pleat("report", "-o", page, "--group", "one=first$", layered).returncode == 0
    with browser.Browser(path) as running:
        running.open(page, ready="document.documentElement.dataset.drawn")
        assert running.complaints() == []
        cells = "[...document.querySelectorAll('#layers-body table')].map((t) => [...t.querySelectorAll('tbody tr')].map((r) => r.cells[0].textContent))"
        assert running.value(cells) == [["Net", "first", "second", "(in no module)"], ["one", "other"]]
        assert "foreign storage" in running.value("document.getElementById('compression').textContent")


def test_a_trace_without_modules_says_so_when_it_is_asked(pleat, by_hand_without):
    assert "by module" not in pleat("summary", by_hand_without).stdout.decode()
    assert "modules:1 records them" in pleat("summary", "--depth", "2", by_hand_without).stdout.decode()


@pytest.fixture
def by_hand_without(tmp_path):
    event = dict(kind=ALLOCATE, block=1, bytes=MIB, change={REQUESTED: MIB, ACTIVE: MIB})
    return write_trace(tmp_path / "plain.trace", [event], ["a", "b", "c", "d"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--group", "attn"], "'attn': is not NAME=REGEX"),
        (["--group", "attn=("], "'attn=(': "),
        (["--group", "a=(x)\\1"], "refers back"),
        (["--depth", "0"], "'0': allowed are 1 to 32"),
        (["--depth", "many"], "'many': allowed are 1 to 32"),
    ],
)
def test_bad_options_are_one_line(pleat, layered, arguments, says):
    done = pleat("summary", *arguments, layered)
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert says in line and line.startswith("pleat: ")


def test_groups_are_for_snapshots_only(pleat, layered, tmp_path):
    done = pleat("export", "--to", "csv", "--group", "a=b", "-o", tmp_path / "x.csv", layered)
    assert done.returncode == 2 and done.stderr.decode().count("\n") == 1
    assert "--group is for torch-snapshot" in done.stderr.decode()
