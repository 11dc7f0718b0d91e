"""Shared by the tests of traces: the output of `pleat trace` for a file, and the head of scripts that trace a part of
themselves."""

import ctypes
import ctypes.util
import json
import struct
import subprocess
import textwrap

import pytest

from conftest import clean_environment


@pytest.fixture(scope="session")
def summarised(command):
    """The output of `pleat trace summary --json` for a file; the host's part is under "host"."""

    def summarised(path, *options):
        done = subprocess.run([command, "trace", "summary", "--json", *options, path], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        summary["host"] = next((device for device in summary["devices"] if device["device"] == "host"), None)
        return summary

    return summarised


@pytest.fixture(scope="session")
def events(command):
    """All events of a file, as `pleat trace export --to json` has them."""

    def events(path, *options):
        done = subprocess.run([command, "trace", "export", "--to", "json", "-o", "-", *options, path], capture_output=True)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return events


@pytest.fixture
def record(command, tmp_path):
    """Runs `pleat trace record` in a folder of the test: the process that has ended, its output, its errors."""

    def record(*words, before=(), **variables):
        environment = clean_environment("LD_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_") | variables
        process = subprocess.Popen([*before, command, "trace", "record", *words], cwd=tmp_path, env=environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=180)
        return process, out, err

    return record


def made(rows, kib):
    """The events that allocated blocks of such a size."""
    return [row for row in rows if row["kind"] == "allocate" and row["bytes"] == kib << 10]


def blocks(path):
    """Kind, count and unpacked contents of each block of a file, by docs/trace_format.md."""
    data, at, found = path.read_bytes(), 16, []
    while at + 48 <= len(data) and data[at : at + 4] == b"PBlk":
        kind, packing, _, stored, unpacked, count = struct.unpack_from("<BBHIII", data, at + 4)
        body = data[at + 48 : at + 48 + stored]
        found.append((kind, count, libzstd(body, unpacked) if packing else body))
        at += 48 + stored
    assert found
    return found


def libzstd(body, size):
    library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    library.ZSTD_decompress.restype = ctypes.c_size_t
    room = ctypes.create_string_buffer(max(size, 1))
    done = library.ZSTD_decompress(room, ctypes.c_size_t(size), body, ctypes.c_size_t(len(body)))
    assert done == size
    return room.raw[:size]


# The head of scripts that trace a part of themselves.
TRACING = textwrap.dedent("""
    import ctypes, os, sys, torch, pleat_test_support as t
    torch.manual_seed(0)
    F = torch.nn.functional
    folder = sys.argv[1]
    bridge = t.bridge().library
    bridge.pleat_trace_start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    def why_not(name):  # empty: the trace begins
        error = ctypes.create_string_buffer(4096)
        bridge.pleat_trace_start(os.fsencode(os.path.join(folder, name)), error, len(error))
        return error.value.decode()
    def start(name):
        problem = why_not(name)
        assert problem == "", problem
    def stop():
        assert bridge.pleat_trace_stop() == 1
    class Net(torch.nn.Module):
        def __init__(self, width=160):
            super().__init__()
            self.inner, self.middle = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
            self.outer = torch.nn.Linear(width, width)
        def forward(self, x):
            x = F.gelu(self.inner(x))
            x = torch.tanh(self.middle(x))
            return self.outer(x)
    def train(net, optimizer, steps, rows=512, keep=None):
        for step in range(steps):
            x = torch.randn(rows, 160)
            loss = net(x).square().mean()
            net.zero_grad()
            loss.backward()
            if optimizer:  # whose first step imports torch._dynamo: 3 CPU seconds of a fresh process
                optimizer.step()
            if keep is not None:
                keep(step)
        return loss.item()
""")
