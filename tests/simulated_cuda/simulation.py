"""The simulated CUDA in a Python process: loads the stand-ins before torch is imported, and returns results.

    simulation.place()                   # before torch, unless LD_PRELOAD has done it
    simulation.configure(devices=2)      # before the first use of a device
    simulation.give_true_values()        # imports torch
    ...
    simulation.objections(); simulation.write_json("out.json")
"""

import ctypes
import importlib.metadata
import os
import pathlib

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def folder():
    """The folder of the stand-ins for this interpreter's torch."""
    build = pathlib.Path(os.environ.get("PLEAT_BUILD_DIR", REPOSITORY / "build"))
    version = ".".join(importlib.metadata.version("torch").split("+")[0].split(".")[:2])
    place = build / "lib" / "simulated_cuda" / f"torch{version}"
    if not (place / "preload").exists():
        raise SystemExit(f"{place} is not built: ninja simulated_cuda_torch{version} simulated_cuda_values_torch{version}")
    return place


def place():
    """Loads the stand-ins globally, the runtime first. No effect if they are already loaded."""
    for library in (folder() / "preload").read_text().split(":"):
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL if library.endswith("sim-cudart.so") else ctypes.RTLD_LOCAL)


def driver():
    library = ctypes.CDLL(str(folder() / "sim-cudart.so"))
    library.simulated_cuda_objections.restype = ctypes.c_size_t
    library.simulated_cuda_write_json.restype = ctypes.c_bool
    library.simulated_cuda_configure.restype = ctypes.c_bool
    library.simulated_cuda_configure.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_bool]
    return library


def configure(*, devices=1, memory_mib=16384, lag=0, seed=0, true_values=False):
    if not driver().simulated_cuda_configure(devices, memory_mib << 20, lag, seed, true_values):
        raise SystemExit("SIMULATED CUDA: too late to configure, or bad settings")


def give_true_values():
    """Replaces torch's kernels. Kernels without a twin on the CPU are omitted if torch has an alternative."""
    import torch

    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.enabled = False
    return ctypes.CDLL(str(folder() / "sim-values.so")).simulated_cuda_replace_kernels()


def objections():
    return driver().simulated_cuda_objections()


def write_json(path):
    if not driver().simulated_cuda_write_json(os.fsencode(path)):
        raise OSError(f"{path} cannot be written")
