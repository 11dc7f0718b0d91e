"""How far two bursts agree on which saved tensors matter. Torch-free."""

from __future__ import annotations

import math
import statistics


def measured_in(profile: dict, step: int) -> dict[str, float]:
    """Noise of each unit that the burst of that step has measured, by key."""
    found = {}
    for unit in profile["units"]:
        for at, noise, *_ in unit.get("measurements") or ():
            if at == step:
                found[unit["key"]] = noise
    return found


def steps_measured(profile: dict) -> list[int]:
    return sorted({at for unit in profile["units"] for at, *_ in unit.get("measurements") or ()})


def ranks(values: list[float]) -> list[float]:
    """From 1; equal values share the mean of their places."""
    order = sorted(values)
    first = {value: order.index(value) + 1 for value in set(values)}
    count = {value: values.count(value) for value in set(values)}
    return [first[value] + (count[value] - 1) / 2 for value in values]


def spearman(one: list[float], other: list[float]) -> float:
    """Pearson's correlation of the ranks; NaN for fewer than three pairs, or where all values of a side are equal."""
    if len(one) != len(other):
        raise ValueError(f"{len(one)} values and {len(other)}")
    if len(one) < 3:
        return math.nan
    try:
        return statistics.correlation(ranks(one), ranks(other))
    except statistics.StatisticsError:
        return math.nan
