"""The bars for a scene's legs, and the misses. Needs neither torch nor processes.

scene.py builds a leg's report from one process. `errors` of a step is |g - exact| / |exact| by parameter, for each parameter
whose exact gradient has at least 1e-3 of the largest norm of the step. `bar` is the scene's own bar at 4 bits, or None.
"""

import dataclasses
import math
import statistics

YARDSTICKS = 3  # times the yardstick's error of the same parameter and step
ALWAYS_RIGHT, NEVER_RIGHT = 0.1, 0.5  # of the gradient's norm, at 4 bits
TENTH, ALWAYS_RIGHT_8 = 10, 0.01  # at 8 bits: this part of the error at 4 bits, or of the norm
BIAS, STANDARD_ERRORS = 0.02, 4  # of the mean of many passes, projected on the exact gradient
VALUES = 1e-5  # losses and forward values, relative to the exact ones


@dataclasses.dataclass
class Miss:
    what: str  # "4 bits", "8 bits", "bias", "loss", "value"
    step: int
    name: str  # of the parameter or value
    found: float
    bar: float
    yardstick: float | None = None

    @property
    def times(self):
        """How many times the bar."""
        return self.found / self.bar if self.found == self.found else math.inf

    def __str__(self):
        beside = "" if self.yardstick is None else f", yardstick {self.yardstick:.3g}"
        return f"step {self.step}, {self.name}: {self.what}: {self.found:.3g}{beside}, bar {self.bar:.3g}"


def bias(projections):
    """Distance of the mean projection from 1 (no bias), and the allowed distance."""
    error = statistics.fmean(projections) - 1
    spread = statistics.stdev(projections) / math.sqrt(len(projections))
    return abs(error), max(BIAS, STANDARD_ERRORS * spread)


def is_biased(projections):
    if not all(map(math.isfinite, projections)):
        return True
    found, allowed = bias(projections)
    return found > allowed


def error_at_4(leg, yardstick):
    """Every measured error of a leg at 4 bits with its bar, as a Miss that may be none. yardstick: None without one."""
    for step, now in enumerate(leg["steps"]):
        for name, error in (now["errors"] or {}).items():
            beside = yardstick["steps"][step]["errors"][name] if yardstick else None
            bar = leg.get("bar") or min(max(YARDSTICKS * (beside or 0.0), ALWAYS_RIGHT), NEVER_RIGHT)
            yield Miss("4 bits", step, name, error, bar, beside)


def error_at_8(leg, at_4):
    for step, now in enumerate(leg["steps"]):
        for name, error in (now["errors"] or {}).items():
            coarse = at_4["steps"][step]["errors"][name]
            coarse = coarse if math.isfinite(coarse) else 0.0
            yield Miss("8 bits", step, name, error, max(coarse / TENTH, (leg.get("bar") or 0) / TENTH, ALWAYS_RIGHT_8))


def biases(leg):
    last = len(leg["steps"]) - 1
    for name, projections in leg["projections"].items():
        finite = all(map(math.isfinite, projections))
        found, allowed = bias(projections) if finite else (math.inf, BIAS)
        yield Miss("bias", last, name, found, allowed)


def values(leg):
    """Errors of the loss and of the values of each step."""
    for step, now in enumerate(leg["steps"]):
        for name, error in now["values"].items():
            yield Miss("loss" if name == "loss" else "value", step, name, error, VALUES)


def all_measured(legs):
    """legs: "4", "8", perhaps "yardstick" and a scene's own, each with its report."""
    yield from error_at_4(legs["4"], legs.get("yardstick"))
    if "8" in legs:
        yield from error_at_8(legs["8"], legs["4"])
    yield from biases(legs["4"])
    for name, leg in legs.items():
        if name != "yardstick":
            yield from values(leg)


def misses(legs):
    """The misses of bars, the worst first."""
    missed = [one for one in all_measured(legs) if not one.found <= one.bar]
    return sorted(missed, key=lambda miss: -miss.times)


def worst(measured):
    """The value nearest to its bar, or farthest beyond it; None if there are none."""
    return max(measured, key=lambda one: one.times, default=None)
