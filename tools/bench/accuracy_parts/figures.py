"""What follows from the runs of one task and one side: differences to stock, their intervals, and whether a row counts.

A run is what worker.py has written. Runs are compared in pairs of equal seed.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

ENOUGH = 0.9  # the share of saved floating bytes that has to be lossy or masks, or a row says nothing of noise
POINTS, PERCENT = 0.5, 0.5  # a difference of accuracy, and of the loss, that does not matter

CLASSES = ("lossy_fp32", "lossy_16bit", "lossless_float", "sides", "nothing")  # of the codec, all that shares are made of


# --- differences --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """The mean of differences and the two-sided 95 % interval of Student's t."""

    mean: float
    low: float
    high: float

    def harmless(self, margin: float) -> bool:
        """It contains 0, or lies within +-`margin`. False for what is not finite."""
        return self.low <= 0 <= self.high or (-margin <= self.low and self.high <= margin)


def within(t: float, freedom: int) -> float:
    """The probability that Student's t with so many degrees of freedom lies between -t and t. Abramowitz and Stegun,
    26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term = total = (cosine if odd else 1.0) if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    inside = math.sin(angle) * total
    return 2 / math.pi * (angle + inside) if odd else inside


def quantile(probability: float, freedom: int) -> float:
    """The t for which within() is `probability`."""
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is t
    for _ in range(60):
        middle = (low + high) / 2
        if within(math.tan(middle), freedom) < probability:
            low = middle
        else:
            high = middle
    return math.tan(low)


def interval(differences: list[float]) -> Interval:
    if len(differences) < 2:
        raise ValueError("an interval needs two differences")
    mean = statistics.fmean(differences)
    if not all(math.isfinite(one) for one in differences):
        return Interval(mean, math.nan, math.nan)
    half = quantile(0.95, len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
    return Interval(mean, mean - half, mean + half)


def differences(stock: list[dict], side: list[dict], field: str) -> list[float]:
    if [run["seed"] for run in stock] != [run["seed"] for run in side]:
        raise ValueError("runs of other seeds")
    return [other[field] - one[field] for one, other in zip(stock, side)]


def accuracy_difference(stock: list[dict], side: list[dict]) -> Interval:
    """In points."""
    return interval(differences(stock, side, "accuracy"))


def loss_difference(stock: list[dict], side: list[dict]) -> Interval:
    """In percent of stock's mean test loss."""
    mean = statistics.fmean(run["test_loss"] for run in stock)
    return interval([100 * one / mean for one in differences(stock, side, "test_loss")])


# --- what was lossy -----------------------------------------------------------------------------------


def lossy_bytes(stock: dict, run: dict) -> dict[str, float]:
    """Of a step, in the mean over the run, by what was kept of them. `stock`: a run of the same task whose census says
    how many bytes are masks; without loss is more than masks."""
    codec, steps = run["pleat"]["codec"], run["steps"]
    masks = min(codec["lossless_float"]["source_bytes"] / steps, stock["saved"]["masks"])
    return {
        "values": (codec["lossy_fp32"]["source_bytes"] + codec["lossy_16bit"]["source_bytes"]) / steps,
        "recomputed": run["pleat"]["records"]["recomputed_bytes"] / steps,
        "sides": codec["sides"]["source_bytes"] / steps,
        "shapes": codec["nothing"]["source_bytes"] / steps,
        "masks": masks,
    }


def lossy_share(stock: dict, run: dict) -> float:
    """The part of all saved floating bytes but parameters'."""
    return sum(lossy_bytes(stock, run).values()) / stock["saved"]["bytes"]


def bits_paid(run: dict) -> float:
    """Bits that an element of noisy payloads took in the mean over a run, metadata counted."""
    classes = [run["pleat"]["codec"][name] for name in ("lossy_fp32", "lossy_16bit")]
    elements = sum(one["elements"] for one in classes)
    return 8 * sum(one["payload_bytes"] for one in classes) / elements if elements else 0.0


# --- what was measured --------------------------------------------------------------------------------


def not_adaptive(run: dict) -> str | None:
    """Why a run is no run with bits by sensitivity; None: it is one."""
    found = run["pleat"]["sensitivity"]
    if found["refusals"]:
        return f"measurement refused: {found['refusals'][0]}"
    if found["bursts"] < 1 or found["passes"] < 1:
        return "no burst"
    if found["measured"] < 1:
        return "no unit measured"
    # What a check distrusts has been measured, and has the default until the next measurement.
    known = found["measured"] + found["distrusted"]
    if known < found["units"]:
        return f"only {known} of {found['units']} units measured"
    if not found["bits"] > 0:
        return "no bits by sensitivity"
    return None


def not_active(run: dict) -> str | None:
    """Why a run under Pleat was none; None: it was one."""
    pleat = run["pleat"]
    if pleat is None:
        return "Pleat was not active"
    if not pleat.get("enabled"):
        return "Pleat was switched off"
    return None


# --- rows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    task: str
    side: str
    has_bar: bool
    accuracy: Interval
    loss: Interval
    share: float  # the least of all runs
    failure: str | None  # why the row is none

    @property
    def counts(self) -> bool:
        return self.failure is None and self.share >= ENOUGH

    @property
    def holds(self) -> bool:
        return self.accuracy.harmless(POINTS) and self.loss.harmless(PERCENT)

    @property
    def verdict(self) -> str:
        if self.failure is not None:
            return f"FAILED: {self.failure}"
        if self.share < ENOUGH:
            return "does not count"
        if not self.has_bar:
            return ""
        return "holds" if self.holds else "MISSED"

    def far_off(self, points: float, percent: float) -> bool:
        """What even two seeds can see: the row is none, or worse by more than that. Written so that a NaN is."""
        return not (self.counts and self.accuracy.mean >= -points and self.loss.mean <= percent)


def row_of(task: str, side: str, stock: list[dict], runs: list[dict], adaptive: bool, has_bar: bool) -> Row:
    reasons = [why for run in runs if (why := not_active(run) or (not_adaptive(run) if adaptive else None))]
    active = [(one, run) for one, run in zip(stock, runs) if not_active(run) is None]
    return Row(
        task,
        side,
        has_bar,
        accuracy_difference(stock, runs),
        loss_difference(stock, runs),
        min((lossy_share(one, run) for one, run in active), default=0.0),
        f"{reasons[0]} ({len(reasons)} of {len(runs)} runs)" if reasons else None,
    )
