"""Every lock of the bridge is in the register that fork() takes (torch_bridge/core/fork_locks.h)."""

import pathlib
import re

BRIDGE = pathlib.Path(__file__).resolve().parents[2] / "torch_bridge"
MUTEX = re.compile(r"^\s*(?:static |mutable |inline )*std::(?:shared_|recursive_|timed_)?mutex (\w+)\s*[;{=]", re.M)
REGISTERED = re.compile(r"ForkLock \w+\s*[{(]\s*ForkPlace::\w+,\s*(\w+)")

# Locks that somebody else registers as part of the owner, or that fork need not take: and why.
ELSEWHERE = {
    "cuda/device_block_codec.h last_workspace_mutex_": "memory/cuda_backend.cpp locks the codec with its heap",
    "measure/gradient_sketches.h mutex_": "of one pass; the thread that forks within it does not hold it, and a child has no others",
    "measure/read_log.h mutex_": "the same; and held around Record::mutex, whose gate fork closes",
    "core/kept_storages.h mutex_": "memory/torch_record_restoring.cpp registers the storages",
    "cuda/device_block_codec.h mutex_": "memory/cuda_backend.cpp locks the codec with its heap",
    "cuda/key_lessons.h mutex_": "cuda/device_block_codec.cpp locks the lessons with the codec",
    "cuda/device_scales.h mutex_": "cuda/device_block_codec.cpp locks the scales with the codec",
    "cuda/allocator_in_front.h routed_mutex_": "memory/cuda_backend.cpp locks the library's own locks with the table of blocks",
    "cuda/storage_notes.h mutex_": "memory/cuda_backend.cpp locks the library's own locks with the table of blocks",
    "core/fork_locks.h mutex_": "the register's own, which fork takes first",
}


def test_every_mutex_is_registered():
    missing, seen = [], 0
    for path in sorted(BRIDGE.rglob("*")):
        if path.suffix not in {".h", ".cpp"}:
            continue
        text = path.read_text()
        registered = set(REGISTERED.findall(text))
        for name in MUTEX.findall(text):
            seen += 1
            where = f"{path.relative_to(BRIDGE)} {name}"
            if name not in registered and where not in ELSEWHERE:
                missing.append(where)
    assert seen >= 6, "looks for them in vain"
    assert not missing, "a child may find these held by a thread that it does not have: " + ", ".join(missing)
