"""Imported by the scripts of the whole-process tests: access to the bridge, and reports.

Works in a stock process too (then no library is loaded and `stats()` is None), so that one script runs unchanged in both.
Independent of Pleat's code: it uses only the C ABI's names.
"""

import base64
import ctypes
import hashlib
import json
import os
import re
import time

import torch

_BRIDGE = re.compile(r"/libpleat_bridge_torch[0-9.]+\.so$")


class Bridge:
    """The bridge mapped into this process, through its C ABI."""

    def __init__(self):
        self.path = None
        with open("/proc/self/maps") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")
                if _BRIDGE.search("/" + path[2]):
                    self.path = "/" + path[2]
                    break
        self.library = ctypes.CDLL(self.path) if self.path else None
        if self.library:
            self.library.pleat_stats_json.restype = ctypes.c_size_t
            self.library.pleat_stats_json.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
            self.library.pleat_report_text.restype = ctypes.c_size_t
            self.library.pleat_report_text.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
            self.library.pleat_enable.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
            self.library.pleat_enable.restype = ctypes.c_int
            self.library.pleat_disable.restype = None

    @property
    def loaded(self):
        return self.library is not None

    def enable(self, conf=""):
        problem = ctypes.create_string_buffer(4096)
        if self.library.pleat_enable(conf.encode(), problem, len(problem)):
            raise RuntimeError("pleat_enable: " + problem.value.decode())

    def disable(self):
        self.library.pleat_disable()

    def stats(self):
        return json.loads(self._text(self.library.pleat_stats_json))

    def report(self):
        return self._text(self.library.pleat_report_text)

    @staticmethod
    def _text(function):
        size = function(None, 0)
        while True:
            buffer = ctypes.create_string_buffer(size + 4096)
            needed = function(buffer, len(buffer))
            if needed < len(buffer):
                return buffer.value.decode()
            size = needed


_bridge = None


def bridge():
    global _bridge
    if _bridge is None or not _bridge.loaded:
        _bridge = Bridge()
    return _bridge


def stats():
    """The bridge's counters, or None in a stock process. With PLEAT_TEST_ON_DEVICE records of the first device count as
    the host's."""
    if not bridge().loaded:
        return None
    found = bridge().stats()
    if os.environ.get("PLEAT_TEST_ON_DEVICE"):
        for name, count in next((device["records"] for device in found["devices"]), {}).items():
            found["records"][name] = found["records"].get(name, 0) + count
    return found


def report():
    """The text of verbose:1, or None in a stock process."""
    return bridge().report() if bridge().loaded else None


def count(name):
    """One counter of "records"; 0 in a stock process."""
    now = stats()
    return now.get("records", {}).get(name, 0) if now else 0


def _plain(tensor):
    tensor = tensor.detach().cpu()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor._is_zerotensor():
        tensor = tensor.clone()
    return tensor.resolve_conj().resolve_neg().contiguous()


def digest(*tensors):
    """A hash of dtype, shape and the very bits of the values (in logical order)."""
    state = hashlib.sha256()
    for tensor in tensors:
        tensor = _plain(tensor)
        state.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        if tensor.numel():
            flat = tensor.reshape(-1)
            if flat.stride(0) != 1:  # a single element may carry any stride
                flat = torch.empty(flat.shape, dtype=flat.dtype).copy_(flat)
            state.update(flat.view(torch.uint8).numpy().tobytes())
    return state.hexdigest()[:32]


def _encode(value):
    if isinstance(value, torch.Tensor):
        tensor = _plain(value)
        if tensor.dtype in (torch.bfloat16, torch.float16):
            tensor = tensor.float()
        array = tensor.numpy()
        return {
            "__array__": str(array.dtype),
            "shape": list(array.shape),
            "data": base64.b64encode(array.tobytes()).decode(),
        }
    raise TypeError(f"cannot report {type(value)}")


def emit(**values):
    """Reports the script's result, with the bridge's counters of this moment: a file in the folder
    the runner named (ranks and children would interleave on a pipe), else one line on stdout."""
    values["pleat_stats"] = stats()
    text = json.dumps(values, default=_encode)
    folder = os.environ.get("PLEAT_TEST_RESULTS")
    if not folder:
        print(text, flush=True)
        return
    path = os.path.join(folder, f"{time.time_ns()}-{os.getpid()}")
    with open(path + ".part", "w") as file:
        file.write(text)
    os.rename(path + ".part", path + ".json")


def gradients(module):
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def noise(*shape, seed, dtype=torch.float32):
    """Normal numbers that do not touch the global random state."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


def two_values(*shape, seed, dtype=torch.float32):
    """Like noise(), of two values only. The exact payload of such a tensor is short; one of noise() has none."""
    return torch.where(noise(*shape, seed=seed) > 0, 0.25, -0.2).to(dtype)


class Gate(torch.nn.Module):
    """A leaky ReLU that saves a mask, whose exact payload is short. Without loss a model's other tensors have none."""

    def forward(self, x):
        return torch.where(x > 0, x, 0.1 * x)


# Noise needs a proof (docs/eligibility.md): the tensor is no leaf of unknown use and no computed weight, and a path from it
# is closed. A script whose own operators give no proof takes its tensors from activations(), and ends in total().


def activations(values):
    """The values as a layer's result: data plus a parameter, which is 0. Its gradient is retained."""
    result = values + torch.nn.Parameter(torch.zeros(1, dtype=values.dtype, device=values.device))
    result.retain_grad()
    return result


def total(result):
    """The sum, as a product with a weight, which closes the path from what `result` is made of."""
    ones = torch.ones(result.numel(), 1, dtype=result.dtype, device=result.device)
    return (result.reshape(1, result.numel()) @ torch.nn.Parameter(ones)).sum()


def group_ratio(original, restored, bits, group=256):
    """Largest |restored - original| / (range of its group of 256 in storage order / (2^bits - 1)).
    `original` must cover its storage. 1 is the bound of the codec; slack for rounding included."""
    a = original.detach().contiguous().reshape(-1).double()
    b = restored.detach().contiguous().reshape(-1).double()
    worst = 0.0
    for begin in range(0, a.numel(), group):
        x, y = a[begin : begin + group], b[begin : begin + group]
        span = float(x.max() - x.min())
        allowed = span / (2**bits - 1) + float(x.abs().max()) * 2.0**-21
        error = float((x - y).abs().max())
        if error:
            worst = max(worst, error / allowed if allowed else float("inf"))
    return worst


def restart_peak():
    """Restarts the peak that anonymous_peak_kib() returns."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def anonymous_peak_kib():
    """The peak of resident memory without files' pages, in KiB."""
    return status_kib("VmHWM") - status_kib("RssFile")


def status_kib(field, file="status"):
    """A field of a file of /proc/self, in KiB; 0 if it is not there. `smaps_rollup` has AnonHugePages."""
    with open(f"/proc/self/{file}") as lines:
        for line in lines:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    return 0
