"""Traces that version 1 recorded: `chunk` has payloads in chunks, `own` in blocks of their own, `inplace` in place; `parts` is the
last part of a job; `devices` is of a job with a simulated device. `summaries.json` holds the summaries that version 1 printed."""

import json
import tarfile
from pathlib import Path

import pytest

from recorded_trace import export, pleat, summary  # noqa: F401  (fixtures)

with tarfile.open(Path(__file__).parent / "version1.tar.gz") as archive:
    FILES = {member.name: archive.extractfile(member).read() for member in archive}
SUMMARIES = json.loads(FILES.pop("summaries.json"))


@pytest.fixture
def trace(tmp_path):
    def write(name):
        path = tmp_path / f"{name}.trace"
        path.write_bytes(FILES[path.name])
        return path

    return write


def test_there_is_a_summary_of_each_trace():
    assert sorted(SUMMARIES) == sorted(name.removesuffix(".trace") for name in FILES)
    devices = {name: [device["device"] for device in summary["devices"]] for name, summary in SUMMARIES.items()}
    assert devices["devices"] == ["host", "cuda:0"] and all(SUMMARIES[name]["devices"][0]["compression"]["compressed"] for name in ("chunk", "own", "inplace"))


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_trace_of_version_1_is_summed_up_as_before(summary, trace, name):
    now = summary(trace(name))
    del now["file"]
    for device in now["devices"]:  # whose trails are one reason
        of = device["compression"]
        assert all(row.pop("trail") == row["reason"] for row in of["reasons"])
        assert all(row.pop("trail") == row["why"] for row in of["exact"])
    assert now == SUMMARIES[name]


@pytest.mark.parametrize("name", SUMMARIES)
def test_payloads_of_a_trace_of_version_1_have_places(export, trace, name):
    rows = [json.loads(line) for line in export(trace(name), "json").splitlines()]
    encodes = [row for row in rows if row["kind"] == "encode" and row["bytes"]]
    sources = {row["record"]: row["block"] for row in rows if row["kind"] == "tag"}
    assert encodes and all(row["class"] == "payloads" for row in encodes)
    at_home = [row["block"] == sources.get(row["record"]) for row in encodes]
    assert all(at_home) if name == "inplace" else not any(at_home)
    chunks = {row["block"] for row in rows if row["kind"] == "chunk_allocate"}
    places = {row["block"] in chunks for row in encodes}
    assert places == {"chunk": {True}, "own": {False}, "inplace": {False}}.get(name, places)
