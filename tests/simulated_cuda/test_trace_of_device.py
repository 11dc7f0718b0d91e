"""A trace of a job with a device. A payload has class `payloads` from its allocation, before its verdict."""

import json
import re
import subprocess

import pytest

from codings import LOSSY

pytest_plugins = ("simulated",)

TRAINING = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)))).cuda()
rows = {rows}
for step in range(2):
    loss = net(torch.randn(rows, 64).cuda()).square().mean()
    between = [torch.empty(rows + i, 16, device="cuda") for i in range(4)]
    if step == 1:
        try:
            torch.empty(1 << 40, device="cuda")
        except torch.OutOfMemoryError:
            pass
    loss.backward()
"""


@pytest.fixture(scope="module", params=[512, 65536], ids=["chunks", "own blocks"])
def recorded(request, fresh, command, tmp_path_factory):
    """The events of the device and what the process wrote to stderr."""
    folder = tmp_path_factory.mktemp("traced")
    (folder / "train.py").write_text(TRAINING.format(rows=request.param))
    done = fresh("--lag", "60", "--seed", "2", folder / "train.py", conf=f"{LOSSY},trace:{folder / 'run.trace'},stacks:none")
    assert done.returncode == 0, done.stderr
    told = subprocess.run([command, "trace", "export", "--to", "json", "-o", "-", folder / "run.trace"], capture_output=True, check=True)
    rows = [json.loads(line) for line in told.stdout.splitlines()]
    return [row for row in rows if row["device"] == "cuda:0"], done.stderr, request.param > 512


def test_rooms_name_their_records_and_encodes_name_the_rooms(recorded):
    rows, _, is_large = recorded
    rooms = {row["record"]: row for row in rows if row["kind"] in ("allocate", "payload_allocate") and row["record"]}
    encodes = [row for row in rows if row["kind"] == "encode" and row["bytes"]]
    assert len(encodes) >= 10
    assert all(rooms[row["record"]]["block"] == row["block"] for row in encodes)
    assert all(row["class"] == "payloads" for row in [*rooms.values(), *encodes])
    assert any(row["kind"] == "allocate" for row in rooms.values()) == is_large


def test_other_blocks_come_between_a_room_and_its_verdict(recorded):
    rows, _, _ = recorded
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
    assert bool(own) == is_large
    called = {row["class"] for row in rows if row["block"] in own}
    assert called == ({"payloads"} if is_large else set())


def test_the_report_of_out_of_memory_counts_queued_encodes_as_payloads(recorded):
    rows, stderr, _ = recorded
    out = next(i for i, row in enumerate(rows) if row["kind"] == "out_of_memory")
    rooms, encoded = {}, set()  # bytes by block and, in a chunk, in all
    for row in rows[:out]:
        kind = row["kind"]
        if kind == "allocate" and row["record"]:
            rooms[row["block"]] = row["bytes"]
        elif kind == "shrink" and row["block"] in rooms:
            rooms[row["block"]] = row["bytes"]
        elif kind == "free":
            rooms.pop(row["block"], None)
        if kind == "encode":
            encoded.add(row["record"])
    queued = {row["record"] for row in rows[:out] if row["kind"] in ("allocate", "payload_allocate") and row["record"]} - encoded
    assert queued
    page = stderr[stderr.index("out of memory") :]
    at_least = sum(rooms.values())
    size, unit = re.search(r"^ +payloads +([0-9.]+) (B|KiB|MiB|GiB)", page, re.M).groups()
    scale = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]
    assert float(size) * scale >= 0.98 * at_least
    assert not re.search(r"^ +kept ", page, re.M), page
