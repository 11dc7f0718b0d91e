"""Traces that no program left: docs/trace_format.md, written apart from the recorder."""

import json
import struct

PROCESS, STRINGS, FRAMES, STACKS, RECORDS = 1, 2, 3, 4, 6
SEGMENT, RELEASE, ALLOCATE, FREE, TAG, HOLD, DROP, OUT_OF_MEMORY = 1, 2, 4, 5, 12, 15, 20, 21
DECIDED, PLAN = 68, 70
COLUMNS = dict(time=1, kind=2, phase=3, reason=4, device=5, thread=6, op=7, stack=8, address=10, bytes=11, block=12, record=13,
               key=15)
REQUESTED, ACTIVE, RESERVED = 16, 17, 18


def number(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def zigzag(value):
    return number((value << 1 ^ value >> 63) & (1 << 64) - 1)


def block(kind, raw, count, times=(0, 0)):
    head = struct.pack("<IBBHIIIIQQ", 0x6B6C4250, kind, 0, 0, len(raw), len(raw), count, 0, *times)
    check = 0xCBF29CE484222325
    for byte in head:
        check = (check ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return head + struct.pack("<Q", check) + raw


# Frame 1 is called by frame 2: string 2 in file 3, and string 4 in file 3.
FRAMES_OF_ODD, STACKS_OF_ODD = [(2, 3, 12), (4, 3, 7)], [(0, 2), (1, 1)]
PROCESS_OF_ODD = {"pid": 7, "start_ns": 1000, "start_wall_ns": 10**18}


def write_trace(path, events, strings=(), frames=FRAMES_OF_ODD, stacks=STACKS_OF_ODD, process=PROCESS_OF_ODD):
    """Events are dictionaries by the names of columns; `change` is one to requested, active and reserved. Those without a
    time follow one another after a microsecond, in one thread.

    A frame is a name and a file, which are strings, and a line; a stack is its caller's, or 0, and a frame.
    """
    events = [dict(time=2000 + 1000 * i, thread=9) | event for i, event in enumerate(events)]
    columns = b""
    for name, column in COLUMNS.items():
        body = b"".join(number(event.get(name, 0)) for event in events)
        columns += bytes([column, 1]) + number(len(body)) + body
    for change in (REQUESTED, ACTIVE, RESERVED):
        body = b"".join(zigzag(event.get("change", {}).get(change, 0)) for event in events)
        columns += bytes([change, 1]) + number(len(body)) + body
    texts = [text if isinstance(text, bytes) else text.encode() for text in strings]
    path.write_bytes(
        b"PleatTr\n"
        + struct.pack("<II", 1, 0)
        + block(PROCESS, json.dumps(process).encode(), 1)
        + block(STRINGS, number(1) + b"".join(number(len(t)) + t for t in texts), len(texts))
        + block(FRAMES, number(1) + b"".join(b"\1" + b"".join(map(number, frame)) for frame in frames), len(frames))
        + block(STACKS, number(1) + b"".join(b"".join(map(number, stack)) for stack in stacks), len(stacks))
        + block(RECORDS, columns, len(events), (events[0]["time"], events[-1]["time"]))
    )
    return path


def odd_trace(path):
    """Two devices; names that every format must quote; addresses below 0; memory that runs out."""
    base = 2**64 - (1 << 30) - 4096
    events = [dict(kind=SEGMENT, device=2, address=base + (2 << 20), bytes=4 << 20, change={RESERVED: 4 << 20})]
    events.append(dict(kind=RELEASE, device=2, address=base + (4 << 20), bytes=1 << 20, change={RESERVED: -1 << 20}))
    events.append(dict(kind=SEGMENT, device=2, address=base, bytes=2 << 20, change={RESERVED: 2 << 20}))
    for i in range(3):
        where = dict(address=base + (i << 20), bytes=1 << 20, block=i + 1, op=1, stack=2)
        events.append(dict(kind=ALLOCATE, device=2, **where, change={REQUESTED: 1 << 20, ACTIVE: 1 << 20}))
    events.append(dict(kind=FREE, device=2, block=2, bytes=1 << 20, change={REQUESTED: -1 << 20, ACTIVE: -1 << 20}))
    where = dict(address=5000, bytes=5 << 20, block=1)
    events.append(dict(kind=ALLOCATE, device=0, **where, change={REQUESTED: 5 << 20, ACTIVE: 6 << 20, RESERVED: 8 << 20}))
    events.append(dict(kind=OUT_OF_MEMORY, device=2, bytes=1 << 30, op=1, stack=2))
    names = ['a;b "c", d\n\\', "for\rward;", 'dir,with "quotes"/x.py', b"caf\xff\xe9"]
    return write_trace(path, events, names)


def simple_trace(path, blocks, start_ns=1000, file="/me/train.py", **process):
    """Blocks that are allocated on the host a millisecond after each other: bytes, operator, function and line each.
    Bytes below 0 free the latest block that is left. Nothing is left at the end."""
    strings, frames, stacks, events, live = [], [], [], [], []

    def string(text):
        if text not in strings:
            strings.append(text)
        return strings.index(text) + 1

    def add(kind, size, number, **more):
        change = size if kind == ALLOCATE else -size
        changes = {REQUESTED: change, ACTIVE: change, RESERVED: change}
        time = start_ns + 1_000_000 * (len(events) + 1)
        events.append(dict(time=time, kind=kind, thread=9, bytes=size, block=number, change=changes, **more))

    for count, (size, op, function, line) in enumerate(blocks, 1):
        if size < 0:
            add(FREE, *live.pop())
            continue
        frames.append((string(function), string(file), line))
        stacks.append((0, len(frames)))
        live.append((size, count))
        add(ALLOCATE, size, count, op=string(op), stack=len(stacks))
    while live:
        add(FREE, *live.pop())
    who = {"pid": 7, "start_ns": start_ns, "start_wall_ns": 10**18, "torch": "2.11", "host": "here"}
    return write_trace(path, events, strings, frames, stacks, who | process)


def planned_trace(path, decided=True):
    """A run at bits:off: three tensors of 1 MiB are saved for backward, held and freed; then 2.5 MiB live. Each would have
    2^18 codes of 8 bits, and 8,256 bytes beside them."""
    events, saved = [], 1 << 20

    def allocate(block, bytes):
        events.append(dict(kind=ALLOCATE, block=block, bytes=bytes, op=1, stack=2, change={REQUESTED: bytes, ACTIVE: bytes}))

    def free(block, bytes):
        events.append(dict(kind=FREE, block=block, bytes=bytes, change={REQUESTED: -bytes, ACTIVE: -bytes}))

    for i in (1, 2, 3):
        allocate(10 * i, saved)
        events.append(dict(kind=TAG, block=10 * i, record=i, bytes=saved, op=1, stack=2))
        if decided:
            events.append(dict(kind=DECIDED, record=i, bytes=saved, reason=8, key=1 << 18, op=5))
            events.append(dict(kind=PLAN, record=i, bytes=saved, key=(1 << 18) + 8256))
        events.append(dict(kind=HOLD, block=10 * i, record=i, bytes=saved))
    for i in (1, 2, 3):
        free(10 * i, saved)
        events.append(dict(kind=DROP, record=i))
    allocate(99, 5 << 19)
    return write_trace(path, events, ["aten::gelu", "forward", "net.py", "main", "may_bear_noise"])
