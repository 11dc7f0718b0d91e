"""`pleat trace export`: what other tools read is sound, and adds up to what the summary says."""

import csv
import io
import json
import os
import pickle
import re
import subprocess
from collections import Counter, defaultdict

import pytest

from conftest import clean_environment
from recorded_trace import by_hand, check_history, check_segments, export, host, pleat, recorded, summary, timeline_of  # noqa: F401  fixtures

FORMATS = ["torch-snapshot.pickle", "torch-snapshot.json", "perfetto", "speedscope", "collapsed", "csv", "json"]


@pytest.fixture(scope="session")
def timeline(export, recorded):
    return timeline_of(export(recorded, "perfetto", "--min-size", "0"))


def test_counters_at_the_peak_are_those_of_the_summary(timeline, host):
    peak, moment = host["peak_live"], host["moment"]
    values = timeline.counters["host live"]
    assert max(value for _, value in values) == peak["bytes"]
    at = next(time for time, value in values if value == peak["bytes"])
    assert timeline.counter_at("host reserved", at) == moment["reserved_bytes"]
    assert timeline.counter_at("resident", at) == moment["resident_bytes"]
    assert timeline.counter_at("small tensors", at) == moment["small_bytes"]
    for name, size in moment["classes"].items():
        assert timeline.counter_at(f"host {name}", at) == size


def test_blocks_are_slices(timeline, host):
    blocks = [one for one in timeline.slices if one["track"].startswith("host blocks: ")]
    assert len(blocks) == host["blocks"]
    assert all(one["track"] == f"host blocks: {one['class']}" for one in blocks)
    assert any(one["name"] == "aten::gelu" and "train.py:" in one["line"] for one in blocks)


def test_steps_and_phases_are_slices_of_their_thread(timeline, host):
    steps = [one for one in timeline.slices if re.fullmatch(r"step \d+", one["name"])]
    assert [one["name"] for one in steps] == [f"step {step['step']}" for step in host["steps"]]
    assert all(one["track"] == "main thread" for one in steps)
    for phase in ("forward", "backward", "optimizer"):
        slices = [one for one in timeline.slices if one["name"] == phase]
        assert len(slices) >= 7
        assert all(any(step["begin"] <= one["begin"] <= one["end"] <= step["end"] for step in steps) for one in slices)


def test_flows_lead_from_what_was_saved_to_what_was_restored(timeline, host):
    flows = defaultdict(list)
    for one in timeline.slices:
        for flow in one["flows"]:
            flows[flow].append(one["track"])
    assert len(flows) == host["compression"]["saved"]
    whole = ["host saved: raw", "host saved: payloads", "host saved: restored"]
    assert sum(tracks[:3] == whole for tracks in flows.values()) > 20
    payloads = [one for one in timeline.slices if one["track"] == "host saved: payloads"]
    assert sum(one["bytes"] for one in payloads) == host["compression"]["source_bytes"]
    assert sum(one["payload bytes"] for one in payloads) == host["compression"]["payload_bytes"]


def test_small_blocks_are_no_slices_unless_asked_for(export, recorded):
    timeline = timeline_of(export(recorded, "perfetto"))
    assert timeline.counters and not any(one["track"].startswith("host blocks") for one in timeline.slices)


def test_a_timeline_of_two_devices(export, by_hand):
    timeline = timeline_of(export(by_hand, "perfetto"))
    assert {name for name in timeline.counters if name.endswith("live")} == {"host live", "cuda:1 live"}
    assert [one["name"] for one in timeline.instants] == ["out of memory"]
    assert any(one["name"] == 'a;b "c", d\n\\' for one in timeline.slices)


# ---- flame graphs ----------------------------------------------------------------------------------


def profiles(data):
    """By name: the sum of each stack. Checks what speedscope's schema asks for."""
    file = json.loads(data)
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = file["shared"]["frames"]
    for frame in frames:
        assert frame.keys() <= {"name", "file", "line", "col"} and isinstance(frame["name"], str)
        assert isinstance(frame.get("line", 1), int)
    found = {}
    for profile in file["profiles"]:
        assert profile["type"] == "sampled" and profile["unit"] == "bytes" and profile["startValue"] == 0
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == sum(profile["weights"]) and all(weight > 0 for weight in profile["weights"])
        stacks = [tuple((frames[i]["name"], frames[i].get("line")) for i in sample) for sample in profile["samples"]]
        found[profile["name"]] = dict(zip(stacks, profile["weights"]))
        assert len(set(stacks)) == len(stacks)
    assert 0 <= file["activeProfileIndex"] < len(file["profiles"])
    return found


def test_flame_graphs_add_up(export, recorded, host):
    found = profiles(export(recorded, "speedscope"))
    assert list(found) == ["peak", "leaked", "saved", "allocated"]
    assert sum(found["peak"].values()) == host["moment"]["live_bytes"]
    assert sum(found["saved"].values()) == host["compression"]["saved_bytes"]
    rows = csv.DictReader(io.StringIO(export(recorded, "csv").decode(), newline=""))
    allocated = sum(int(row["bytes"]) for row in rows if row["kind"] == "allocate")
    assert sum(found["allocated"].values()) == allocated
    assert any(stack[-1][0] == "aten::linear" and "Layer.forward" in dict(stack) for stack in found["peak"])


def test_what_leaks_is_what_the_script_holds(export, recorded):
    (stack,) = (leaked := profiles(export(recorded, "speedscope"))["leaked"])
    assert stack[-1][0] == "aten::ones" and leaked[stack] % (256 * 128 * 4) == 0


@pytest.mark.parametrize("what", ["peak", "leaked", "saved", "allocated"])
def test_collapsed_stacks_are_those_of_speedscope(export, recorded, what):
    lines = export(recorded, "collapsed", "--what", what).decode().splitlines()
    assert lines and all(re.fullmatch(r"[^;]+(;[^;]+)+ [1-9]\d*", line) for line in lines)
    weights = profiles(export(recorded, "speedscope"))[what].values()
    assert sorted(int(line.rsplit(" ", 1)[1]) for line in lines) == sorted(weights)


def test_names_in_collapsed_stacks_cannot_end_them(export, by_hand):
    lines = export(by_hand, "collapsed").decode().splitlines()
    assert lines == [
        "host;(no stack);(unknown) 5242880",
        'cuda:1;x.py:7 caf\ufffd\ufffd;x.py:12 for ward,;a,b "c", d \\ 3145728',
    ]
    assert list(profiles(export(by_hand, "speedscope")))[:5:4] == ["host peak", "cuda:1 peak"]


# ---- events ----------------------------------------------------------------------------------------


def test_events_as_csv_and_as_lines_of_json(export, recorded, summary, host):
    text = export(recorded, "csv").decode()
    assert text.count("\r\n") == text.count("\n")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    fields = "time_s step phase kind device block record bytes class op file line live reserved".split()
    told = [row for row in rows if row["kind"] not in ("resident", "small", "lost")]  # those are the recorder's
    assert list(rows[0]) == fields and len(told) == summary(recorded)["events"] < len(rows)
    lines = [json.loads(line) for line in export(recorded, "json").decode().splitlines()]
    own = {"decided": ["bits", "noisy_elements"], "plan": ["plan", "payload_bytes"]} | dict.fromkeys(("encode", "hold", "restore"), ["took_ns"])
    assert [list(line) for line in lines] == [[*fields, *own.get(line["kind"], []), "stack"] for line in lines]
    assert len(lines) == len(rows)
    lines = [{name: value for name, value in line.items() if name in [*fields, "stack"]} for line in lines]
    for row, line in zip(rows, lines):
        assert float(row.pop("time_s")) == line.pop("time_s")
        stack = line.pop("stack")
        assert row == {name: "" if value is None else str(value) for name, value in line.items()}
        assert not stack or any(entry.startswith(f"{line['file']}:{line['line']} ") for entry in stack)
    assert max(int(row["live"]) for row in rows if row["live"]) == host["peak_live"]["bytes"]
    kinds = Counter(row["kind"] for row in rows)
    assert "?" not in kinds and kinds["tag"] == host["compression"]["saved"]
    assert all(row["class"] and row["op"] for row in rows if row["kind"] in ("allocate", "free"))


def test_odd_names_survive_csv_and_json(export, by_hand):
    rows = list(csv.DictReader(io.StringIO(export(by_hand, "csv").decode(), newline="")))
    assert rows[3]["op"] == 'a;b "c", d\n\\' and rows[3]["file"] == 'dir,with "quotes"/x.py' and rows[3]["line"] == "12"
    line = json.loads(export(by_hand, "json").splitlines()[3])
    assert line["op"] == rows[3]["op"] and line["device"] == "cuda:1"
    assert line["stack"] == [f"{rows[3]['file']}:12 for\rward;", f"{rows[3]['file']}:7 caf\ufffd\ufffd"]


def test_filters(export, recorded, by_hand, host):
    def rows(*arguments, trace=recorded):
        return list(csv.DictReader(io.StringIO(export(trace, "csv", *arguments).decode(), newline="")))

    since, until = (host["steps"][i]["seconds"] for i in (2, 4))
    some = rows("--since", str(since), "--until", str(until))
    assert some and all(since - 1e-6 <= float(row["time_s"]) <= until + 1e-6 for row in some)
    some = rows("--min-size", "512KiB")
    assert some and all(int(row["bytes"]) >= 512 << 10 for row in some)
    assert {row["class"] for row in rows("--class", "optimizer state")} == {"optimizer state"}
    assert {row["op"] for row in rows("--op", "gelu")} == {"aten::gelu"}
    assert {row["step"] for row in rows("--step", "3")} == {"3"}
    assert len(rows("--max-events", "100")) == 100
    assert {row["device"] for row in rows("--device", "cuda:1", trace=by_hand)} == {"cuda:1"}
    peak = profiles(export(recorded, "speedscope", "--class", "optimizer state"))["peak"]
    assert sum(peak.values()) == host["moment"]["classes"]["optimizer state"]
    snapshot = pickle.loads(export(recorded, "torch-snapshot.pickle", "--op", "zeros_like"))
    check_segments(snapshot)
    check_history(snapshot)
    blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
    assert blocks and all(b["frames"][0]["name"] == "aten::zeros_like" for b in blocks)
    slices = timeline_of(export(recorded, "perfetto", "--op", "gelu", "--min-size", "64KiB")).slices
    assert {one["name"] for one in slices if "bytes" in one} == {"aten::gelu"}
    part = timeline_of(export(recorded, "perfetto", "--since", str(since), "--until", str(until), "--min-size", "0"))
    assert {"step 2", "step 3"} <= {one["name"] for one in part.slices} and part.counters["host live"]
    assert 0 < max(one["end"] for one in part.slices) - min(one["begin"] for one in part.slices) <= (until - since) * 1e9 + 1


# ---- files -----------------------------------------------------------------------------------------


def test_an_export_appears_whole_and_replaces_nothing_unasked(pleat, by_hand, tmp_path):
    file = tmp_path / "out.csv"
    umask = os.umask(0o027)
    try:
        assert pleat("export", "--to", "csv", "-o", file, by_hand).returncode == 0
    finally:
        os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o640
    whole = file.read_bytes()
    file.write_text("mine")
    again = pleat("export", "--to", "csv", "-o", file, by_hand, text=True)
    assert again.returncode == 2 and again.stderr.count("\n") == 1 and "--force" in again.stderr
    assert file.read_text() == "mine"
    assert pleat("export", "--to", "csv", "-o", file, "--force", by_hand).returncode == 0
    assert file.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hand.trace", "out.csv"]


def test_wrong_usage_is_one_line_and_exit_code_2(pleat, by_hand, tmp_path):
    def refused(*arguments, **options):
        done = pleat("export", *arguments, text=True, **options)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stderr.startswith("pleat: ")
        return done.stderr

    unknown = refused("--to", "xml", "-o", tmp_path / "a", by_hand)
    assert all(name in unknown for name in FORMATS)
    refused("--to", "csv", by_hand)
    refused("-o", tmp_path / "a", by_hand)
    refused("--to", "csv", "-o", tmp_path / "a", tmp_path / "none.trace")
    refused("--to", "csv", "--at", "end", "-o", "-", by_hand)
    refused("--to", "speedscope", "--what", "saved", "-o", "-", by_hand)
    refused("--to", "collapsed", "--what", "lost", "-o", "-", by_hand)
    refused("--to", "csv", "-o", tmp_path / "no" / "folder", by_hand)
    refused("--to", "csv", "--force", "-o", tmp_path, by_hand)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hand.trace"]


@pytest.mark.parametrize("to", FORMATS)
def test_a_full_disk_is_one_line_and_exit_code_2(command, by_hand, to):
    command = [command, "trace", "export", "--to", to, "-o", "-", by_hand]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=clean_environment("LD_"))
    assert done.returncode == 2 and "No space left" in done.stderr and done.stderr.count("\n") == 1
