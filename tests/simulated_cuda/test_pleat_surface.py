"""Torch's CUDA allocator looks the same to a script under Pleat as in stock, for every allocator in force: statistics,
snapshots, errors, graphs, pools, callbacks."""

import functools
import json
import pathlib
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from codings import OFF

pytest_plugins = ("simulated",)

SURFACE = pathlib.Path(__file__).resolve().parent / "surface.py"

ALLOCATORS = {
    "native": {},
    "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    "asynchronous": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    "uncached": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
}
ALONE = "checkpoints"  # in a process of its own, over the native allocator
# Topics that (can) end the process with stock, too: after a failed allocation for a graph, torch
# 2.11 still assumes the capture.
NOT_WITH = {
    "native": set(),
    "expandable": set(),
    "asynchronous": {"failed_capture"},
    "uncached": {"graphs", "pools", "pool_in_need", "wrong_free", "failed_capture"},
}


def topics(allocator):
    lines = SURFACE.read_text().splitlines()
    all_topics = [after[4:].partition("(")[0] for before, after in zip(lines, lines[1:]) if before == "@topic"]
    return [topic for topic in all_topics if topic != ALONE and topic not in NOT_WITH[allocator]]


@pytest.fixture(scope="module")
def seen(fresh):
    """A script's output and warnings with stock and under Pleat, by allocator and topics, each in a process of its own."""

    @functools.cache
    def run(allocator, chosen):
        words = ["--shadow", "--lag", 1000000, SURFACE, *chosen]
        with ThreadPoolExecutor(2) as pool:
            confs = (None, f"{OFF},reuse_gradients:0")
            return list(pool.map(lambda conf: fresh(*words, conf=conf, **ALLOCATORS[allocator]), confs))

    def see(allocator, chosen=None):
        runs = run(allocator, tuple(chosen or topics(allocator)))
        for done in runs:
            assert done.returncode == 0, done.stderr[-3000:]
        return [(json.loads(done.stdout), done.stderr) for done in runs]

    return see


def differing(mine, stocks, where=""):
    """The places where two JSON values differ."""
    if isinstance(mine, dict) and isinstance(stocks, dict):
        for key in mine.keys() | stocks.keys():
            yield from differing(mine.get(key), stocks.get(key), f"{where}.{key}")
    elif isinstance(mine, list) and isinstance(stocks, list) and len(mine) == len(stocks):
        for i, (one, other) in enumerate(zip(mine, stocks)):
            yield from differing(one, other, f"{where}[{i}]")
    elif mine != stocks:
        yield f"{where}: {mine!r}, stock {stocks!r}"[:300]


@pytest.mark.parametrize("allocator, topic", [(allocator, topic) for allocator in ALLOCATORS for topic in topics(allocator)])
def test_a_script_sees_the_same_as_with_stock(topic, allocator, seen):
    (stocks, _), (mine, _) = seen(allocator)
    assert list(differing(mine[topic], stocks[topic]))[:5] == []


@pytest.mark.parametrize("allocator", list(ALLOCATORS))
def test_a_script_gets_the_same_warnings_as_with_stock(allocator, seen):
    def warnings(text):
        return sorted({line.split("Warning: ")[1][:60] for line in text.splitlines() if "Warning: " in line})

    (_, stocks), (_, mine) = seen(allocator)
    assert warnings(mine) == warnings(stocks)


def test_the_state_of_a_graphs_pool_is_kept_and_set_as_with_stock(seen):
    (stocks, _), (mine, _) = seen("native", [ALONE])
    assert list(differing(mine, stocks))[:5] == []
