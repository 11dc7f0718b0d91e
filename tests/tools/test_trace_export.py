"""`pleat trace export`: what other tools read is sound, and adds up to what the summary says."""

import csv
import io
import json
import os
import pickle
import pickletools
import re
import subprocess
from collections import Counter, defaultdict

import pytest

import traces_by_hand
from conftest import IN_CI, clean_environment

FORMATS = ["torch-snapshot.pickle", "torch-snapshot.json", "perfetto", "speedscope", "collapsed", "csv", "json"]
# Of torch's viewer, which has an unpickler of its own.
OPCODES = """PROTO FRAME EMPTY_DICT EMPTY_LIST EMPTY_TUPLE MARK APPEND APPENDS SETITEM SETITEMS LIST DICT TUPLE TUPLE1
    TUPLE2 TUPLE3 BINUNICODE SHORT_BINUNICODE BININT BININT1 BININT2 LONG1 BINFLOAT NEWTRUE NEWFALSE NONE MEMOIZE
    BINPUT LONG_BINPUT BINGET LONG_BINGET STOP""".split()
CATEGORIES = {
    "parameters": "parameter",
    "gradients": "gradient",
    "optimizer state": "optimizer_state",
    "inputs": "input",
    "saved raw": "activation",
    "payloads": "activation_compressed",
    "restored": "activation_restored",
    "temporary": "temporary",
    "kept": "kept",
    "unknown": "unknown",
}

TRAINING = """
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.down(torch.nn.functional.gelu(self.up(x))))


model = nn.Sequential(Layer(128), Layer(128))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
held = []
for step in range(7):
    loss = model(torch.randn(512, 128)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    held.append(torch.ones(256, 128))  # leaks
"""


@pytest.fixture(scope="session")
def pleat(build_dir):
    command = build_dir / "bin" / "pleat"
    if not command.exists():
        (pytest.fail if IN_CI else pytest.skip)(f"{command} is not built")
    environment = clean_environment("LD_")

    def call(*arguments, **options):
        return subprocess.run(
            [command, "trace", *arguments], env=environment, capture_output=True, timeout=120, **options
        )

    return call


@pytest.fixture(scope="session")
def recorded(pleat, preload_library, test_python, tmp_path_factory):
    """A trace of a small training that compresses."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "train.py").write_text(TRAINING)
    trace = folder / "run.trace"
    done = pleat("record", "-o", trace, "--bits", "4", "--", test_python, folder / "train.py")
    assert done.returncode == 0 and trace.exists(), done.stderr
    return trace


@pytest.fixture(scope="session")
def export(pleat):
    def call(trace, to, *arguments):
        done = pleat("export", "--to", to, "-o", "-", *arguments, trace)
        assert done.returncode == 0 and done.stderr == b"", done.stderr
        return done.stdout

    return call


@pytest.fixture(scope="session")
def summary(pleat):
    def call(trace, *arguments):
        done = pleat("summary", "--json", *arguments, trace)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


@pytest.fixture(scope="session")
def host(summary, recorded):
    (device,) = summary(recorded)["devices"]
    assert device["moment"]["live_bytes"] > 0 and device["compression"]["compressed"] > 0
    return device


@pytest.fixture
def by_hand(tmp_path):
    return traces_by_hand.odd_trace(tmp_path / "hand.trace")


# ---- torch's snapshots -----------------------------------------------------------------------------


def check_segments(snapshot):
    for segment in snapshot["segments"]:
        at = segment["address"]
        states = defaultdict(int)
        for block in segment["blocks"]:
            assert block["address"] == at and block["size"] > 0
            assert 0 <= block["requested_size"] <= block["size"]
            at += block["size"]
            states[block["state"]] += block["size"]
        assert at == segment["address"] + segment["total_size"] <= 2**53
        assert segment["allocated_size"] == states["active_allocated"]
        assert segment["active_size"] == states["active_allocated"] + states["active_pending_free"]
        assert segment["requested_size"] == sum(block["requested_size"] for block in segment["blocks"])
    spans = sorted((s["address"], s["address"] + s["total_size"], s["device"]) for s in snapshot["segments"])
    for (_, end, device), (begin, _, other) in zip(spans, spans[1:]):
        assert end <= begin or device != other


def check_history(snapshot):
    """What the viewer does: events pair up, and end at what the segments hold."""
    for device, events in enumerate(snapshot["device_traces"]):
        live, times = {}, []
        segments = [s for s in snapshot["segments"] if s["device"] == device]
        for event, behind in zip(events, [*events[1:], None]):
            times.append(event["time_us"])
            if event["action"] == "alloc":
                assert any(s["address"] <= event["addr"] < s["address"] + s["total_size"] for s in segments)
                assert event["addr"] not in live
                live[event["addr"]] = event
            elif event["action"] == "free_requested":
                assert behind["action"] == "free_completed" and behind["addr"] == event["addr"]
            elif event["action"] == "free_completed":
                assert live.pop(event["addr"])["size"] == event["size"]
        assert times == sorted(times)
        # Allocator State History: from the end back to the beginning.
        there = {s["address"]: s["total_size"] for s in segments}
        for event in reversed(events):
            if event["action"] == "segment_alloc":
                assert there.pop(event["addr"]) == event["size"]
            elif event["action"] == "segment_free":
                there[event["addr"]] = event["size"]
            elif event["action"] in ("alloc", "free_completed"):
                assert any(at <= event["addr"] < at + size for at, size in there.items())
        blocks = [b for s in segments for b in s["blocks"] if b["state"] == "active_allocated"]
        held = {b["address"]: b["requested_size"] for b in blocks if b["frames"] or b["category"] != "unknown"}
        assert held.items() >= {a: e["size"] for a, e in live.items() if e["category"] != "unknown"}.items()


@pytest.fixture(scope="session")
def snapshot(export, recorded):
    return pickle.loads(export(recorded, "torch-snapshot.pickle"))


def test_a_pickle_is_one_that_the_viewer_reads(export, recorded):
    items = []  # above each mark
    for opcode, argument, _ in pickletools.genops(export(recorded, "torch-snapshot.pickle", "--at", "end")):
        assert opcode.name in OPCODES
        if opcode.name == "LONG1":
            assert abs(argument) <= 2**53
        if opcode.name == "MARK":
            items.append(0)
        elif opcode.name in ("APPENDS", "SETITEMS"):
            assert 0 < items.pop() <= 1000  # the viewer passes each as an argument
        elif items and not opcode.name.endswith("PUT"):
            items[-1] += 1


def test_json_and_pickle_hold_the_same(export, recorded, snapshot):
    assert json.loads(export(recorded, "torch-snapshot.json")) == snapshot


def test_a_snapshot_is_as_torch_has_it(snapshot):
    assert list(snapshot) == ["segments", "device_traces", "allocator_settings", "external_annotations"]
    check_segments(snapshot)
    check_history(snapshot)
    (events,) = snapshot["device_traces"]
    assert {event["category"] for event in events} <= {*CATEGORIES.values()}
    assert any(event["category"] == "unknown" for event in events)
    assert events[-1]["action"] == "snapshot"
    frames = [frame for event in events for frame in event["frames"]]
    assert all(frame.keys() == {"name", "filename", "line"} for frame in frames)
    assert any(frame["filename"].endswith("train.py") and frame["name"] == "Layer.forward" for frame in frames)
    stages = Counter(note["stage"] for note in snapshot["external_annotations"])
    assert stages["START"] == stages["END"] > 0


@pytest.mark.parametrize("at", ["peak", "end", "time"])
def test_a_snapshot_adds_up_to_the_summary(export, summary, recorded, host, at):
    when = str(host["steps"][3]["seconds"]) if at == "time" else at
    snapshot = pickle.loads(export(recorded, "torch-snapshot.pickle", "--at", when))
    check_segments(snapshot)
    check_history(snapshot)
    moment = summary(recorded, "--at", when)["devices"][0]["moment"]
    segments = snapshot["segments"]
    assert sum(s["requested_size"] for s in segments) == moment["live_bytes"]
    assert sum(s["active_size"] for s in segments) == moment["active_bytes"]
    sizes = defaultdict(int)
    for segment in segments:
        for block in segment["blocks"]:
            sizes[block.get("category")] += block["requested_size"]
    for name, category in CATEGORIES.items():
        assert sizes[category] == moment["classes"][name]


def test_torchs_own_tool_reads_a_snapshot(export, recorded, test_python, tmp_path):
    file = tmp_path / "run.pickle"
    file.write_bytes(export(recorded, "torch-snapshot.pickle"))
    script = (
        "import pickle, sys; from torch.cuda import _memory_viz as viz; s = pickle.load(open(sys.argv[1], 'rb'));"
        "print(viz.segsum(s), viz.trace(s), viz.memory(s, str), viz.trace_plot(s, 0), viz.segment_plot(s, 0))"
    )
    done = subprocess.run([test_python, "-c", script, file], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "aten::linear" in done.stdout, done.stderr[-2000:]


def test_the_latest_events_of_a_snapshot_are_kept(export, recorded, snapshot):
    few = pickle.loads(export(recorded, "torch-snapshot.pickle", "--max-events", "40"))
    (kept,), (events,) = few["device_traces"], snapshot["device_traces"]
    assert 40 < len(kept) <= 81 and kept == events[-len(kept) :]
    assert [s["active_size"] for s in few["segments"]] == [s["active_size"] for s in snapshot["segments"]]


def test_payloads_name_what_was_saved(snapshot):
    payloads = [
        event
        for event in snapshot["device_traces"][0]
        if event["action"] == "alloc" and event["category"] == "activation_compressed"
    ]
    assert payloads and all(event["frames"] for event in payloads)
    assert any(event["category"] == "activation" for event in snapshot["device_traces"][0])


def test_devices_and_odd_addresses(export, summary, by_hand):
    snapshot = pickle.loads(export(by_hand, "torch-snapshot.pickle"))
    assert snapshot == json.loads(export(by_hand, "torch-snapshot.json"))
    check_segments(snapshot)
    check_history(snapshot)
    assert [len(events) > 0 for events in snapshot["device_traces"]] == [True, False, True]
    for device in summary(by_hand)["devices"]:
        index = {"host": 0, "cuda:1": 2}[device["device"]]
        segments = [s for s in snapshot["segments"] if s["device"] == index]
        assert sum(s["requested_size"] for s in segments) == device["peak_live"]["bytes"]
    frames = {frame["name"] for segment in snapshot["segments"] for b in segment["blocks"] for frame in b["frames"]}
    assert frames == {'a;b "c", d\n\\', "for\rward;", "caf\ufffd\ufffd"}
    assert snapshot["device_traces"][2][-1]["time_us"] == (10**18 + 6000) // 1000


def test_a_snapshot_of_where_memory_ran_out(export, pleat, by_hand, recorded):
    snapshot = pickle.loads(export(by_hand, "torch-snapshot.pickle", "--at", "oom", "--device", "cuda:1"))
    assert [len(events) > 0 for events in snapshot["device_traces"]] == [False, False, True]
    (oom,) = [event for event in snapshot["device_traces"][2] if event["action"] == "oom"]
    assert oom["size"] == 1 << 30 and "device_free" in oom
    none = pleat("export", "--to", "torch-snapshot.json", "--at", "oom", "-o", "-", recorded, text=True)
    assert none.returncode == 2 and none.stdout == "" and "no device ran out of memory" in none.stderr


# ---- perfetto --------------------------------------------------------------------------------------


def Timeline(data):
    try:
        import perfetto_timeline
    except ImportError:
        (pytest.fail if IN_CI else pytest.skip)("the package perfetto is missing")
    return perfetto_timeline.Timeline(data)


@pytest.fixture(scope="session")
def timeline(export, recorded):
    return Timeline(export(recorded, "perfetto", "--min-size", "0"))


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
    timeline = Timeline(export(recorded, "perfetto"))
    assert timeline.counters and not any(one["track"].startswith("host blocks") for one in timeline.slices)


def test_a_timeline_of_two_devices(export, by_hand):
    timeline = Timeline(export(by_hand, "perfetto"))
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
    assert list(rows[0]) == fields and len(rows) == summary(recorded)["events"]
    lines = [json.loads(line) for line in export(recorded, "json").decode().splitlines()]
    assert [list(line) for line in lines] == [[*fields, "stack"]] * len(rows)
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
    slices = Timeline(export(recorded, "perfetto", "--op", "gelu", "--min-size", "64KiB")).slices
    assert {one["name"] for one in slices if "bytes" in one} == {"aten::gelu"}
    part = Timeline(export(recorded, "perfetto", "--since", str(since), "--until", str(until), "--min-size", "0"))
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
def test_a_full_disk_is_one_line_and_exit_code_2(build_dir, pleat, by_hand, to):
    command = [build_dir / "bin" / "pleat", "trace", "export", "--to", to, "-o", "-", by_hand]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=clean_environment("LD_"))
    assert done.returncode == 2 and "No space left" in done.stderr and done.stderr.count("\n") == 1
