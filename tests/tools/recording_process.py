"""A process that records a trace as a bridge would have it recorded: libpleat_recorder.so by ctypes, Python's stacks."""

import contextlib
import os
import subprocess
import sys

JOB = """
import ctypes, os, sys, time

SUMS = ctypes.c_int64 * 6


class Event(ctypes.Structure):
    _fields_ = (
        [(name, ctypes.c_uint64) for name in "time_ns address bytes block record node key stream".split()]
        + [("change", SUMS)]
        + [(name, ctypes.c_uint32) for name in "op stack thread".split()]
        + [("device", ctypes.c_int8)]
        + [(name, ctypes.c_uint8) for name in "kind phase reason".split()]
    )


class Request(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("stacks", ctypes.c_uint32),
        ("path", ctypes.c_char_p),
        ("process", ctypes.c_char_p),
        ("most_bytes", ctypes.c_uint64),
    ]


class Recorder(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32),
        ("struct_size", ctypes.c_uint32),
        ("start", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Request), ctypes.c_char_p, ctypes.c_size_t)),
        ("stop", ctypes.CFUNCTYPE(ctypes.c_uint64)),
        ("intern", ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)),
        ("stack", ctypes.PYFUNCTYPE(ctypes.c_uint32, ctypes.c_int)),
        ("event", ctypes.CFUNCTYPE(None, ctypes.POINTER(Event))),
        ("small", ctypes.CFUNCTYPE(None, ctypes.c_int64)),
        ("abandon", ctypes.CFUNCTYPE(None)),
        ("page", ctypes.CFUNCTYPE(None, ctypes.c_char_p)),
    ]


library = ctypes.CDLL(sys.argv[1])
library.pleat_recorder.restype = ctypes.POINTER(Recorder)
recorder = library.pleat_recorder(2).contents
blocks = 0
live = {}


def start(path, most_bytes=0):
    request = Request(ctypes.sizeof(Request), 1, path.encode(), b'{"pid": %d}' % os.getpid(), most_bytes)
    error = ctypes.create_string_buffer(256)
    assert recorder.start(request, error, 256) == 0, error.value


def tell(kind, bytes=0, change=0, op=None, **members):
    event = Event(time_ns=time.monotonic_ns(), kind=kind, bytes=bytes, device=-1)
    event.change[0] = event.change[1] = change
    if op:
        event.op = recorder.intern(op.encode(), len(op.encode()))
        event.stack = recorder.stack(1)
    for name, value in members.items():
        setattr(event, name, value)
    recorder.event(event)


def phase(which, step=0):
    tell(64, phase=which, bytes=step)


def allocate(bytes, op="aten::linear", which=1, **members):
    global blocks
    blocks += 1
    live[blocks] = bytes
    tell(4, bytes, bytes, op, phase=which, block=blocks, **members)
    return blocks


def free(block):
    bytes = live.pop(block)
    tell(5, bytes, -bytes, block=block)


def ready(word="ready"):
    print(word, flush=True)
    sys.stdin.readline()


"""


@contextlib.contextmanager
def recording(library, folder, script, *arguments):
    """Runs `script` behind JOB, and goes on once it has printed a line; each line on stdin lets it go on."""
    path = folder / "job.py"
    path.write_text(JOB + script)
    runtime = folder / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    process = subprocess.Popen(
        [sys.executable, path, library, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()
