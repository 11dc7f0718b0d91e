"""Includes go only along the arrows of docs/architecture.md: between folders, within them, and never in a circle."""

import collections
import pathlib
import re

REPO = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)
TORCH = {"torch", "ATen", "c10", "caffe2"}

# Rooms, and what each may include besides itself. A room is a folder without the rooms below it.
ROOMS = {
    "allocator": {"allocator/blocks", "allocator/residency", "allocator/host"},
    "allocator/blocks": {"allocator"},
    "allocator/residency": {"allocator", "allocator/blocks"},
    "allocator/host": {"allocator", "allocator/blocks"},
    "compress": set(),
    "compress/block": {"compress"},
    "compress/cuda": {"compress"},
    "sensitivity": set(),
    "torch_bridge/core": {"allocator", "compress", "compress/block", "sensitivity"},
    "torch_bridge/torch_access": {"allocator", "torch_bridge/core"},
    "torch_bridge/memory": {"torch_bridge/torch_access"},
    "torch_bridge/policy": {"torch_bridge/memory"},
    "torch_bridge/hooks": {"torch_bridge/policy"},
    "torch_bridge/entry": {"torch_bridge/hooks"},
    "torch_bridge/install": {"torch_bridge/entry"},
    "torch_bridge": set(),  # c_abi.h, which is C
    "torch_bridge/include/pleat": set(),
    "torch_bridge/example": set(),
    "interpose": {"torch_bridge"},
}
