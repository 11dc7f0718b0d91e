"""What the tests of exports share: a small training as `pleat trace record` records it, the command, and checks."""

import json
import subprocess
from collections import defaultdict

import pytest

import traces_by_hand
from conftest import clean_environment, missing, shared_folder
from forked import entrance

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
def pleat(command):
    environment = clean_environment("LD_")

    def call(*arguments, **options):
        return subprocess.run(
            [command, "trace", *arguments], env=environment, capture_output=True, timeout=120, **options
        )

    return call


@pytest.fixture(scope="session")
def recorded(pleat, preload_library, test_python, tmp_path_factory):
    """A trace of a small training that compresses, recorded by the first who wants it."""
    folder = shared_folder(tmp_path_factory) / "recorded"
    trace = folder / "run.trace"
    with entrance(str(folder)):
        if not trace.exists():
            folder.mkdir(exist_ok=True)
            (folder / "train.py").write_text(TRAINING)
            draft = folder / "draft.trace"
            done = pleat("record", "--force", "-o", draft, "--bits", "4", "--", test_python, folder / "train.py")
            assert done.returncode == 0 and draft.exists(), done.stderr
            draft.rename(trace)
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


def timeline_of(data, sequence=1):
    try:
        import perfetto_timeline
    except ImportError:
        missing("the package perfetto is missing")
    return perfetto_timeline.Timeline(data, sequence)


def data_of(page):
    """What a report draws: the JSON in its text."""
    return json.loads(page.split('id="data">')[1].split("</script>")[0])


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
