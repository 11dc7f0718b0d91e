"""`pleat trace` and what it cannot read, or can read a part of: one clear line, and nothing left behind."""

import json
import resource
import struct
import subprocess

import pytest

import traces_by_hand as hand
from conftest import clean_environment

FORMATS = ["torch-snapshot.pickle", "torch-snapshot.json", "perfetto", "speedscope", "collapsed", "csv", "json"]
COMMANDS = [("summary",), ("summary", "--json"), ("report",), *(("export", "--to", to) for to in FORMATS)]
LITTLE_MEMORY = 400 << 20


@pytest.fixture
def run(command, tmp_path):
    """A command on a file, in little memory and time. What it writes to a file is its output."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (LITTLE_MEMORY, LITTLE_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (10, 10))

    def run(words, path, *options):
        output = ["-o", "output"] if words[0] != "summary" else []
        call = [command, "trace", *words, *output, *options, path]
        done = subprocess.run(call, capture_output=True, env=clean_environment("LD_"), preexec_fn=limit, timeout=120,
                              cwd=tmp_path)  # fmt: skip
        done.stderr = done.stderr.decode()
        if output and (tmp_path / "output").exists():
            assert done.stdout == b""
            done.stdout = (tmp_path / "output").read_bytes()
            (tmp_path / "output").unlink()
        return done

    return run


def refused(done):
    """The line, without its beginning."""
    assert done.returncode == 2 and done.stdout == b"", done
    assert done.stderr.startswith("pleat: ") and done.stderr.endswith("\n") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr[len("pleat: ") : -1]


# ---- files that are no traces ----------------------------------------------------------------------

NO_TRACES = {
    "empty": (b"", "this file is empty"),
    "cut in its header": (b"PleatTr\n\1\0", "this trace was cut off before it began"),
    "text": (b"import torch\n" * 100, "this is no trace of Pleat"),
    "zeros": (bytes(100), "this is no trace of Pleat"),
    "a pickle": (b"\x80\x04\x95" + bytes(200), "this is no trace of Pleat"),
    "of version 0": (b"PleatTr\n" + bytes(100), "this is no trace of Pleat"),
    "of a newer version": (b"PleatTr\n" + struct.pack("<II", 99, 0) + bytes(100), "the trace is of version 99, this pleat reads 2"),
}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_is_no_trace_is_one_line(run, tmp_path, words):
    for name, (content, why) in NO_TRACES.items():
        (tmp_path / name).write_bytes(content)
        assert refused(run(words, tmp_path / name)) == f"{tmp_path / name}: {why}"
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 30)
    assert refused(run(words, tmp_path / "sparse")) == f"{tmp_path / 'sparse'}: this is no trace of Pleat"
    for path, why in ((tmp_path, "this is a folder"), ("/dev/zero", "no plain file"), (tmp_path / "none", "No such file or directory")):
        assert refused(run(words, path)) == f"{path}: {why}"
    odd = tmp_path / "a\nb\x1b[31m"
    odd.write_bytes(b"")
    assert "\x1b" not in refused(run(words, odd))
    assert {path.name for path in tmp_path.iterdir()} == {*NO_TRACES, "sparse", odd.name}


# ---- files that are traces in part -----------------------------------------------------------------


def bomb(bytes_in_all):
    """A frame of zstd that unpacks to so many zeros: RFC 8878, blocks of one repeated byte."""
    each, frame = 128 << 10, bytearray(b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", bytes_in_all))
    count = bytes_in_all // each
    for i in range(count):
        frame += struct.pack("<I", each << 3 | 1 << 1 | (i == count - 1))[:3] + b"\0"
    return bytes(frame)


def packed_block(kind, stored, raw_bytes, count):
    head = bytearray(hand.block(kind, b"", count)[:40])
    head[5] = 1
    head[8:16] = struct.pack("<II", len(stored), raw_bytes)
    check = 0xCBF29CE484222325
    for byte in head:
        check = (check ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return bytes(head) + struct.pack("<Q", check) + stored


PARTS = {
    "cut in its last block": (lambda whole: whole[:-9], 0),
    "with a gigabyte of zeros behind it": (None, 1),
    "with a bomb behind it": (lambda whole: whole + packed_block(hand.RECORDS, bomb(1 << 30), 1000, 10), 1),
    "with a bomb of the largest size behind it": (lambda whole: whole + packed_block(hand.RECORDS, bomb(1 << 30), 16 << 20, 10), 1),
    "with a block of twenty megabytes": (lambda whole: whole + packed_block(hand.RECORDS, bomb(1 << 20), 20 << 20, 10), 1),
    "with lengths beyond its end": (lambda whole: whole + hand.block(hand.RECORDS, b"", 1)[:8] + b"\xff" * 40, 1),
}


@pytest.mark.parametrize("part", PARTS)
def test_what_can_be_read_is_shown(run, tmp_path, part):
    whole = hand.odd_trace(tmp_path / "whole").read_bytes()
    spoil, damaged = PARTS[part]
    path = tmp_path / "part"
    path.write_bytes(spoil(whole) if spoil else whole)
    if spoil is None:
        with open(path, "r+b") as file:
            file.truncate(1 << 30)
    told = run(("summary", "--json"), path)
    assert (told.returncode, told.stderr) == (0, "")
    summary = json.loads(told.stdout)
    assert summary["incomplete"] and summary["damaged"] == damaged
    assert summary["events"] == (0 if part.startswith("cut") else 9)
    text = run(("summary",), path)
    assert text.returncode == 0 and b"incomplete" in text.stdout and (b"damage" in text.stdout) == bool(damaged)
    for words in COMMANDS[2:]:
        done = run(words, path)
        if done.returncode:
            assert refused(done) == f"{path}: nothing was live" and summary["events"] == 0
        else:
            assert done.stderr.count("\n") <= 1


def test_events_that_make_no_sense_are_counted_and_harm_nothing(run, tmp_path):
    """A clock that was set back, frees without allocations, numbers of nothing, more freed than there was."""
    events = [
        dict(kind=hand.ALLOCATE, time=9_000_000, block=1, address=4096, bytes=1 << 20, op=99, stack=77, change={hand.REQUESTED: 1 << 20}),
        dict(kind=hand.FREE, time=5_000_000, block=7, bytes=1 << 20, change={hand.REQUESTED: -(1 << 20)}),
        dict(kind=hand.FREE, time=5_000_000, block=1, bytes=1 << 20, change={hand.REQUESTED: -(1 << 20)}),
        dict(kind=hand.FREE, time=4_000_000, block=1, bytes=1 << 20, change={hand.REQUESTED: -(1 << 20)}),
        dict(kind=hand.ALLOCATE, time=2**64 - 1, block=2, address=2**64 - 4096, bytes=2**62, change={hand.REQUESTED: 2**62}),
        dict(kind=hand.TAG, time=0, block=2**64 - 1, record=2**64 - 1, bytes=2**64 - 1),
        dict(kind=200, time=7_000_000, device=255, block=3, bytes=5),
    ]
    path = hand.write_trace(tmp_path / "odd", events, ["a"])
    told = run(("summary", "--json"), path)
    assert (told.returncode, told.stderr) == (0, "")
    summary = json.loads(told.stdout)
    assert summary["events"] == len(events) and summary["disagreements"] >= 2
    text = run(("summary",), path)
    assert text.returncode == 0 and b"contradict" in text.stdout
    for words in COMMANDS[2:]:
        done = run(words, path)
        assert done.returncode == 0 or refused(done), words


# ---- options ---------------------------------------------------------------------------------------

WRONG = {
    "--at -1": "--at: '-1': allowed are peak, end, oom, dump and seconds",
    "--at nan": "--at: 'nan'",
    "--at noon": "--at: 'noon'",
    "--since -1": "--since: '-1': allowed are seconds",
    "--until 1e99": "--until: '1e99'",
    "--step -1": "--step: '-1': allowed are whole numbers",
    "--step 99999999999999999999": "--step: '99999999999999999999'",
    "--device cuda:128": "--device: 'cuda:128': allowed are host, cuda:0",
    "--device tpu:0": "--device: 'tpu:0'",
    "--class nonsense": "--class: 'nonsense': allowed are parameters, gradients,",
    "--min-size -1": "--min-size: '-1': allowed are sizes like",
    "--min-size 1XB": "--min-size: '1XB'",
    "--min-size 9EiB": "--min-size: '9EiB'",
    "--min-size 1e400": "--min-size: '1e400'",
    "--max-events 0": "--max-events: '0': allowed are whole numbers from 1",
    "--max-events x": "--max-events: 'x'",
    "--nonsense": "The following argument was not expected: --nonsense;",
}
OUTSIDE = {
    "--at 99": "--at: the trace ends at 0.000 s",
    "--since 99": "--since: the trace ends at 0.000 s",
    "--since 2 --until 1": "--until is before --since",
    "--step 5": "--step: the trace has no steps",
    "--device cuda:5": "has nothing of cuda:5",
}


@pytest.mark.parametrize("words", [("summary",), ("report",), ("export", "--to", "torch-snapshot.json")], ids=" ".join)
def test_options_out_of_range_are_one_line(run, tmp_path, words):
    path = hand.odd_trace(tmp_path / "hand.trace")
    for options, why in WRONG.items():
        assert refused(run(words, path, *options.split())).startswith(why), options
    for options, why in OUTSIDE.items():
        assert refused(run(words, path, *options.split())) == f"{path}: {why}"
    assert [one.name for one in tmp_path.iterdir()] == ["hand.trace"]


def test_what_merely_finds_nothing_is_no_mistake(run, tmp_path):
    path = hand.odd_trace(tmp_path / "hand.trace")
    for options in ("--op zzz", "--class payloads", "--min-size 1PiB", "--at 0", "--at end", "--until 0", "--device cuda:1", "--max-events 1"):
        for words in COMMANDS:
            if "--at" in options and words[0] == "export" and not words[2].startswith("torch"):
                continue
            done = run(words, path, *options.split())
            assert done.returncode == 0 or refused(done) == f"{path}: nothing was live", (words, options)


def test_steps_that_a_trace_has_are_named(run, tmp_path):
    events = [dict(kind=64, phase=1, time=1000 + i, bytes=3 + i, thread=1) for i in range(4)]
    path = hand.write_trace(tmp_path / "steps", events)
    assert refused(run(("summary",), path, "--step", "7")) == f"{path}: --step 7: the trace has steps 3 to 6"
    assert run(("summary",), path, "--step", "4").returncode == 0


def test_unknown_formats_and_limits(run, tmp_path):
    path = hand.odd_trace(tmp_path / "hand.trace")
    line = refused(run(("export", "--to", "xml"), path))
    assert line.startswith("--to: 'xml'") and all(name in line for name in FORMATS)
    for options in ("--max-peak x", "--max-growth 1MiB/day", "--top -1", "--max-peak -1"):
        assert refused(run(("summary",), path, *options.split())).startswith(options.split()[0])
