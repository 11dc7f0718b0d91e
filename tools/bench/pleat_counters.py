"""Reads Pleat's own counters (the JSON of pleat_stats_json), which train.py puts into a result.

Counters run over the whole process; what is missing (another version of Pleat) is left out of the words.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib


def _bridge_of_this_process() -> ctypes.CDLL | None:
    """The bridge that is loaded, or None. Raises OSError where its file has been replaced since."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if os.path.basename(path).startswith("libpleat_bridge_torch"):
            bridge = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            bridge.pleat_stats_json.restype = ctypes.c_size_t
            bridge.pleat_stats_json.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
            return bridge
    return None


def _read(bridge: ctypes.CDLL) -> dict:
    size = 1 << 16
    while True:
        text = ctypes.create_string_buffer(size)
        needed = bridge.pleat_stats_json(text, size)
        if needed < size:
            return json.loads(text.value)
        size = needed + 4096


def of_this_process() -> dict | None:
    """The counters of the Pleat in this process, or None where there is none."""
    try:
        bridge = _bridge_of_this_process()
    except OSError as error:  # rebuilt while we ran: the loaded one has no name any more
        return {"error": str(error)}
    return None if bridge is None else _read(bridge)


class StepCounters:
    """What each step adds to the counters of the Pleat in this process, and its own peaks, in bytes. `steps` has one
    entry a step, and none where there is no Pleat. Nothing is read inside a step."""

    ADDED = (
        "time.encode_ns", "time.decode_ns", "records.payload_bytes",
        "sensitivity.bursts", "sensitivity.passes", "sensitivity.seconds",
    )  # fmt: skip
    PEAKS = ("requested", "reserved", "payload")

    def __init__(self) -> None:
        self._bridge = _bridge_of_this_process()
        self._before: dict | None = None
        self.steps: list[dict] = []

    def begin(self) -> None:
        if self._bridge is not None:
            self._before = self._before or _read(self._bridge)
            self._bridge.pleat_reset_peaks()

    def end(self) -> None:
        if self._bridge is None:
            return
        now = _read(self._bridge)
        before, after = {"pleat": self._before}, {"pleat": now}
        step = {path: (counter(after, path) or 0) - (counter(before, path) or 0) for path in self.ADDED}
        step |= {f"{kind}_peak": counter(after, f"bytes.{kind}.peak") for kind in self.PEAKS}
        self.steps.append(step)
        self._before = now


def counter(result: dict, path: str) -> float | None:
    """The number at a dotted path ("records.source_bytes"), None where there is none."""
    value = result.get("pleat")
    for key in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value if isinstance(value, (int, float)) else None


def bytes_per_step(result: dict) -> tuple[float, float] | None:
    """What was compressed in a step: (bytes of the saved storages, bytes of their payloads)."""
    saved, payload = counter(result, "records.source_bytes"), counter(result, "records.payload_bytes")
    steps = counter(result, "records.backward_passes") or result.get("steps")
    return (saved / steps, payload / steps) if saved and payload and steps else None


def hook_ns(result: dict) -> float | None:
    """Nanoseconds of one hook call, from Pleat's own samples."""
    total, samples = counter(result, "time.hook_ns_sampled"), counter(result, "time.hook_samples")
    return total / samples if total is not None and samples else None


def codec_share(result: dict) -> float | None:
    """Time in encode and decode as a part of the wall time of all steps."""
    encode, decode = counter(result, "time.encode_ns"), counter(result, "time.decode_ns")
    seconds = sum(result.get("step_seconds", ()))
    if encode is None or decode is None or not seconds:
        return None
    return (encode + decode) / 1e9 / seconds


def summary(result: dict) -> str:
    """One line: saved -> payload bytes of a step, cost of a hook call, the codec's share; "" if nothing."""
    words = []
    moved = bytes_per_step(result)
    if moved:
        saved, payload = moved
        words.append(f"a step saves {saved / 1e6:.0f} MB -> {payload / 1e6:.0f} MB ({saved / payload:.2f}x)")
    if moved and counter(result, "records.encoded") and result.get("steps"):
        # Results from before the counter got its name have it as "worked_out".
        recomputed = counter(result, "records.recomputed") or counter(result, "records.worked_out") or 0
        tensors = counter(result, "records.encoded") + recomputed
        words.append(f"{tensors / result['steps']:.0f} tensors a step")
    if hook_ns(result) is not None:
        words.append(f"{hook_ns(result):.0f} ns a hook call")
    if codec_share(result) is not None:
        words.append(f"codec {codec_share(result) * 100:.1f} % of the steps' time")
    return ", ".join(words)
