"""`pleat trace export --to torch-snapshot...`: what torch's own viewer and tools read, and that it adds up."""

import json
import pickle
import pickletools
import subprocess
from collections import Counter, defaultdict

import pytest

from recorded_trace import by_hand, check_history, check_segments, export, host, pleat, recorded, summary  # noqa: F401  fixtures

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
    script = (  # without the rest of torch, which takes two CPU seconds
        "import importlib.util as i, pickle, sys; s = pickle.load(open(sys.argv[1], 'rb'));"
        "[folder] = i.find_spec('torch').submodule_search_locations;"
        "spec = i.spec_from_file_location('viz', folder + '/cuda/_memory_viz.py');"
        "viz = i.module_from_spec(spec); spec.loader.exec_module(viz);"
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
