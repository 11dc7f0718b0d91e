"""Includes go only along the arrows of docs/architecture.md: between folders, within them, and never in a circle."""

import graphlib
import pathlib
import re

REPO = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)
TORCH = {"torch", "ATen", "c10", "caffe2"}

# What the folders of the top may include besides themselves: folders, or one file.
FOLDERS = {
    "allocator": set(),
    "compress": set(),
    "sensitivity": set(),
    "torch_bridge": {"allocator", "compress", "sensitivity"},
    "interpose": {"torch_bridge/c_abi.h"},
}
# Rooms from the bottom up: a file includes its own room and those below it. A row with several rooms is of rooms
# that know nothing of each other. A file named here is a room of its own.
ROOMS = [
    ["allocator"],
    ["allocator/blocks"],
    ["allocator/store"],
    ["allocator/lifecycle"],
    ["allocator/host", "allocator/cuda", "allocator/heap.h"],
    ["allocator/host_heap.h"],
    ["compress/host_device.h"],
    ["compress/exponents/exponents.h"],
    ["compress"],
    ["compress/device"],
    ["compress/booleans", "compress/sides", "compress/near_zero", "compress/sketch"],
    ["compress/grouped/group_math.h"],
    ["compress/exponents"],
    ["compress/grouped"],
    ["compress/exponents/group_exponents.h"],
    ["compress/rotated", "compress/framed"],
    ["compress/functions"],
    ["compress/lines", "compress/in_place", "compress/isa"],
    ["compress/payload_writer.cpp", "compress/codec.cpp"],
    ["compress/block", "compress/cuda"],
    ["sensitivity"],
    ["torch_bridge", "torch_bridge/include/pleat", "torch_bridge/example"],
    ["torch_bridge/core"],
    ["torch_bridge/measure/book"],
    ["torch_bridge/trace/state.h"],
    ["torch_bridge/core/runtime.h"],
    ["torch_bridge/core/runtime.cpp", "torch_bridge/core/statistics.h"],
    ["torch_bridge/core/statistics.cpp", "torch_bridge/core/report.cpp"],
    ["torch_bridge/torch_access"],
    ["torch_bridge/trace"],
    ["torch_bridge/cuda"],
    ["torch_bridge/memory"],
    ["torch_bridge/policy"],
    ["torch_bridge/hooks"],
    ["torch_bridge/measure"],
    ["torch_bridge/entry"],
    ["torch_bridge/install"],
    ["interpose"],
    ["interpose/trace"],
]
TORCH_FREE = {"torch_bridge/core", "torch_bridge/measure/book", "torch_bridge"}


def room_of(path):
    """The row of the room a file is in, and the room."""
    for row, rooms in enumerate(ROOMS):
        for room in rooms:
            if path == room:
                return row, room
    for row, rooms in enumerate(ROOMS):
        for room in rooms:
            if str(pathlib.PurePath(path).parent) == room:
                return row, room
    return None


def includes():
    for folder in FOLDERS:
        for path in sorted((REPO / folder).rglob("*")):
            if path.suffix in {".h", ".cpp", ".c", ".cu", ".cuh", ".S"}:
                for target in INCLUDE.findall(path.read_text()):
                    yield folder, str(path.relative_to(REPO)), target


def ours(target):
    return (REPO / target).is_file()


def test_includes_go_only_along_the_arrows_between_folders():
    wrong = []
    for folder, path, target in includes():
        head = target.split("/")[0]
        allowed = head == folder or head in FOLDERS[folder] or target in FOLDERS[folder]
        if ours(target) and not allowed:
            wrong.append(f"{path} includes {target}")
    assert not wrong, "\n".join(wrong)


def test_includes_go_only_downwards_within_a_folder():
    wrong = []
    for folder, path, target in includes():
        if not ours(target) or not target.startswith(folder + "/"):
            continue
        (row, room), (target_row, target_room) = room_of(path), room_of(target)
        if target_row > row or (target_row == row and room != target_room):
            wrong.append(f"{path} includes {target}")
    assert not wrong, "\n".join(wrong)


def test_every_file_is_in_a_room():
    homeless = {path for _, path, _ in includes() if room_of(path) is None}
    assert not homeless, "\n".join(sorted(homeless))


def test_no_includes_go_in_a_circle():
    """A header, its inside (NAME_impl.h) and the file that implements it count as one."""
    graph = {}
    for _, path, target in includes():
        if ours(target):
            unit, other = (re.sub(r"(_impl)?\.\w+$", "", name) for name in (path, target))
            if unit != other:
                graph.setdefault(unit, set()).add(other)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        raise AssertionError("in a circle: " + " <- ".join(error.args[1])) from None


def test_only_the_bridge_sees_torch_and_not_all_of_it():
    wrong = []
    for folder, path, target in includes():
        if target.split("/")[0] not in TORCH:
            continue
        if folder != "torch_bridge" or str(pathlib.PurePath(path).parent) in TORCH_FREE:
            wrong.append(f"{path} includes {target}")
    assert not wrong, "\n".join(wrong)


def test_there_is_something_to_check():
    assert len(list(includes())) > 100
