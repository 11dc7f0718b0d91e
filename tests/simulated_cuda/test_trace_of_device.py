"""A trace of a job with a device. A payload has class `payloads` from its allocation, before its verdict."""

import json
import re
import subprocess

import pytest

from codings import LOSSY

pytest_plugins = ("simulated",)

WEIGHTS = 3 * 64 * 64 * 4
TRAINING = """
import ctypes
import torch
from pleat_test_support import bridge as loaded
from torch import nn
bridge = loaded().library
bridge.pleat_trace_dump.argtypes = [ctypes.c_char_p]
torch.manual_seed(0)
net = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)))).cuda()
rows = {rows}
looks = False

def look(*_):
    if looks:
        bridge.pleat_trace_dump(b"a look")

for layer in net:
    layer.register_forward_hook(look)
for step in range(2):
    looks = step == 1
    loss = net(torch.randn(rows, 64).cuda()).square().mean()
    loss.backward()
    net.zero_grad()
"""


@pytest.fixture(scope="module", params=[512, 65536], ids=["chunks", "own blocks"])
def recorded(request, fresh, command, tmp_path_factory):
    """The events of the device and looks, stderr, and whether payloads are large."""
    folder = tmp_path_factory.mktemp("traced")
    (folder / "train.py").write_text(TRAINING.format(rows=request.param))
    done = fresh("--lag", "60", "--seed", "2", folder / "train.py", conf=f"{LOSSY},trace:{folder / 'run.trace'},stacks:none")
    assert done.returncode == 0, done.stderr
    told = subprocess.run([command, "trace", "export", "--to", "json", "-o", "-", folder / "run.trace"], capture_output=True, check=True)
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    return [row for row in rows if row["device"] == "cuda:0" or row["kind"] == "dump"], done.stderr, request.param > 512


def test_rooms_name_their_records_and_encodes_name_the_rooms(recorded):
    rows, _, is_large = recorded
    rooms = {row["record"]: row for row in rows if row["kind"] in ("allocate", "payload_allocate") and row["record"]}
    encodes = [row for row in rows if row["kind"] == "encode" and row["bytes"]]
    assert len(encodes) >= 10
    assert all(rooms[row["record"]]["block"] == row["block"] for row in encodes)
    assert all(row["class"] == "payloads" for row in [*rooms.values(), *encodes])
    assert ("allocate" if is_large else "payload_allocate") in {row["kind"] for row in rooms.values()}


def test_other_blocks_come_between_a_room_and_its_verdict(recorded):
    rows, *_ = recorded
    waiting, between = {}, set()
    for row in rows:
        if row["kind"] in ("allocate", "payload_allocate") and row["record"]:
            waiting[row["record"]] = row
        elif row["kind"] == "allocate":
            between |= set(waiting)
        elif row["kind"] == "encode":
            waiting.pop(row["record"], None)
    assert len(between) >= 5


def test_a_block_of_a_payload_is_payloads_all_its_life(recorded):
    rows, _, is_large = recorded
    chunks = {row["block"] for row in rows if row["kind"] == "chunk_allocate"}
    own = {row["block"] for row in rows if row["kind"] == "encode" and row["bytes"]} - chunks
    assert own or not is_large
    assert {row["class"] for row in rows if row["block"] in own} <= {"payloads"}


def test_the_page_of_a_look_counts_queued_encodes_as_payloads(recorded):
    rows, stderr, _ = recorded
    pages = iter(stderr.split("a look")[1:])
    rooms, queued, compared = {}, {}, 0  # bytes by block; bytes of rooms without a verdict, by record
    for row in rows:
        kind, block, size = row["kind"], row["block"], row["bytes"]
        if kind in ("allocate", "payload_allocate") and row["record"]:
            queued[row["record"]] = size
        if kind == "allocate" and row["record"] or kind == "shrink" and block in rooms:
            rooms[block] = size
        elif kind == "free":
            rooms.pop(block, None)
        elif kind in ("encode", "hold", "drop"):
            queued.pop(row["record"], None)
        elif kind == "dump":
            page = next(pages)
            assert told(page, "payloads") >= 0.98 * max(sum(rooms.values()), sum(queued.values()))
            assert told(page, "kept") <= WEIGHTS, page  # a device's parameters have no labels
            compared += bool(queued)
    assert compared


def told(page, name):
    line = re.search(rf"^ +{name} +([0-9.]+) (B|KiB|MiB)", page, re.M)
    return float(line[1]) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[line[2]] if line else 0
