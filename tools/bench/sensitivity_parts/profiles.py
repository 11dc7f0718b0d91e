"""What follows from a profile: the widths that Pleat's own assigner chooses, and what noise these have by other figures
than its own.

Noise is always relative: the squared error of the gradient of all parameters over its squared norm. Keys are those of
units, as the file has them.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import subprocess
import tempfile
from dataclasses import dataclass

from harness import ROOT, Problem

EXACT = 0  # the width of what is not compressed, or without noise


def program() -> str:
    """The command line program, of the build folder."""
    path = pathlib.Path(os.environ.get("PLEAT_BUILD_DIR") or ROOT / "build") / "bin" / "pleat"
    if not path.is_file():
        raise Problem(f"no {path}: build it with `bash tools/setup.sh`")
    return str(path)


def read(path: str | os.PathLike) -> dict:
    return json.loads(pathlib.Path(path).read_text())


def noise_at_4_bits(unit: dict) -> float | None:
    """Of a unit with measurements: their geometric mean, in which the newest count most, as Pleat takes it. None: it
    has none."""
    measurements = unit.get("measurements") or ()
    if not measurements:
        return None
    last = measurements[-1][0] + 1
    seen = [(((step + 1) / last) ** 2, math.log(noise)) for step, noise, *_ in measurements if noise > 0]
    return math.exp(sum(w * log for w, log in seen) / sum(w for w, _ in seen)) if seen else 0.0


def noises(profile: dict) -> dict[str, float]:
    return {u["key"]: noise for u in profile["units"] if (noise := noise_at_4_bits(u)) is not None and u.get("costs")}


def error_at(unit: dict, width: int) -> float:
    """Squared error at a width, over that at 4 bits. A width that the unit cannot have counts as the next one."""
    if width == EXACT:
        return 0.0
    return next((error for candidate, _, error in unit["costs"] if candidate >= width), 0.0)


@dataclass(frozen=True)
class Assignment:
    """What `pleat profile show` says for some bits: widths of units whose width is a choice. Their predicted noise
    counts what a check has distrusted, too."""

    widths: dict[str, int]
    uniform_widths: dict[str, int]
    noise: float
    uniform_noise: float
    payload_bytes: int
    uniform_payload_bytes: int


def assignment(path: str | os.PathLike, bits: float) -> Assignment:
    command = [program(), "profile", "show", str(path), "--bits", f"{bits:.6g}", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Problem(f"pleat profile show failed: {done.stderr.strip()}")
    shown = json.loads(done.stdout)
    lossy = [unit for unit in shown["units"] if unit["lossy"]]
    widths = {unit["key"]: unit["width"] for unit in lossy}
    uniform_widths = {unit["key"]: unit["uniform_width"] for unit in lossy}
    profile = read(path)
    noise = noises(profile)
    return Assignment(
        widths,
        uniform_widths,
        predicted(profile, widths, noise),
        predicted(profile, uniform_widths, noise),
        shown["lossy_payload_bytes"],
        shown["uniform_lossy_payload_bytes"],
    )


def predicted(profile: dict, widths: dict[str, int], noise: dict[str, float]) -> float:
    """The noise of all units at these widths, each on its own."""
    units = {unit["key"]: unit for unit in profile["units"]}
    return sum(noise[key] * error_at(units[key], width) for key, width in widths.items() if key in noise)


def with_noises(profile: dict, noise: dict[str, float]) -> dict:
    """The profile as if these had been measured, and nothing else."""
    units = []
    for unit in profile["units"]:
        unit = {name: value for name, value in unit.items() if name != "measurements"}
        if unit["key"] in noise:
            unit["measurements"] = [[1, noise[unit["key"]]]]
        units.append(unit)
    return {**profile, "units": units}


def only(profile: dict, key: str, width: int) -> dict:
    """A profile by which that unit has that width at 4 bits and all others are exact."""
    units = []
    for unit in profile["units"]:
        unit = {name: value for name, value in unit.items() if name != "distrusted"}
        if unit.get("costs"):
            is_it = unit["key"] == key
            unit["measurements"] = [[1, 0.0 if is_it else 1.0]]
            unit["costs"] = [cost for cost in unit["costs"] if cost[0] == EXACT or (is_it and cost[0] == width)]
        units.append(unit)
    return {**profile, "units": units}


def assign_by(profile: dict, noise: dict[str, float], bits: float) -> Assignment:
    """The assignment if these noises had been measured."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "profile"
        path.write_text(json.dumps(with_noises(profile, noise)))
        return assignment(path, bits)


# --- how good an estimate is ----------------------------------------------------------------------------


def mean_of(profiles: list[dict]) -> dict[str, float]:
    """The mean of what several profiles have measured, key by key."""
    sums: dict[str, list[float]] = {}
    for profile in profiles:
        for key, noise in noises(profile).items():
            sums.setdefault(key, []).append(noise)
    return {key: sum(found) / len(found) for key, found in sums.items()}


@dataclass(frozen=True)
class Regret:
    """The true noise of an assignment over that of the best one for as many bytes; and where it comes from."""

    ratio: float
    worst: list[dict]  # the units that add most: what they are, noise at 4 bits by both, widths by both


def regret(profile: dict, truth: dict[str, float], estimate: dict[str, float], bits: float) -> Regret:
    """`profile`: whose candidates and bytes hold. Both are assigned by Pleat's own assigner."""
    best, chosen = assign_by(profile, truth, bits), assign_by(profile, estimate, bits)
    least = predicted(profile, best.widths, truth)
    found = predicted(profile, chosen.widths, truth)
    if least <= 0:
        return Regret(1.0 if found <= 0 else math.inf, [])
    worst = []
    for unit in profile["units"]:
        key = unit["key"]
        if key not in truth or key not in best.widths:
            continue
        added = truth[key] * (error_at(unit, chosen.widths[key]) - error_at(unit, best.widths[key])) / least
        worst.append(
            {
                "unit": described(unit),
                "adds": added,
                "true_noise": truth[key],
                "estimated_noise": estimate.get(key),
                "best_width": best.widths[key],
                "chosen_width": chosen.widths[key],
            }
        )
    worst.sort(key=lambda one: -one["adds"])
    return Regret(found / least, worst[:5])


def uniform_regret(profile: dict, truth: dict[str, float], bits: float) -> float:
    best = assign_by(profile, truth, bits)
    least = predicted(profile, best.widths, truth)
    found = predicted(profile, best.uniform_widths, truth)
    return found / least if least > 0 else math.inf


def described(unit: dict) -> str:
    return f"{unit.get('producer') or 'input'} to {unit.get('reader')} {unit.get('shape', [])}"
