"""The rows of tools/bench/sensitivity_cost.py: what each runs, and the figures that follow. Each takes a plan, and returns
lines of the table with what the JSON keeps beside them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from harness import Problem
from sensitivity_cost_parts import ranks, steps
from sensitivity_cost_parts.runs import Case, Runs, with_profile
from sensitivity_parts import profiles
from sensitivity_parts.bars import REPORTED, Bar, Row

BITS = 4
MEASURES = f"bits:{BITS},sensitivity:on,refresh:0"  # one burst, in step 10, and its check in step 11
UNIFORM = f"bits:{BITS}"
LONG = 5000  # steps that the share of time is of
SETTLED_BUDGET = 3  # steps at the end of a run, over which a budget is to be used up
LOWEST, HIGHEST = 2, 8  # bits whose peaks a budget lies between
EQUAL = Bar(0, hard=True)


@dataclass(frozen=True)
class Plan:
    """How much is run. `parts`: where the budgets lie between the peak at 2 bits and that at 8."""

    pairs: int = 3
    burst_steps: int = 14
    codec_steps: int = 9
    budget_steps: int = 20
    profiled_steps: int = 7
    parts: tuple[float, ...] = (0.2, 0.5, 0.8)
    stable_steps: int = 1001
    stable_refresh: int | None = None  # None: the default bursts
    exact_steps: int = 30
    exact_refresh: int = 15  # bursts in steps 10 and 25
    stock: bool = True  # exact steps are compared with stock's, too
    long_steps: int = LONG


@dataclass
class Found:
    rows: list[Row] = field(default_factory=list)
    runs: dict = field(default_factory=dict)  # for the JSON

    def add(self, measure: str, values: float | list[float], bar: Bar = REPORTED) -> None:
        self.rows.append(Row(measure, values if isinstance(values, list) else [values], bar))


def with_bursts(run: dict, least: int = 1) -> dict:
    """The run, if it had them."""
    count = len(steps.bursts(run))
    if count < least:
        why = "; ".join(((run["pleat"] or {}).get("sensitivity") or {}).get("refusals") or ()) or "no reason is given"
        raise Problem(f"{run['model']}: {count} bursts in {run['steps']} steps instead of {least}: {why}")
    return run


# --- time ----------------------------------------------------------------------------------------------------------


def time(case: Case, plan: Plan, runs: Runs) -> Found:
    """What a burst costs, and what bits for each tensor cost in the codec."""
    found = Found()
    profile = runs.profile_of(case, "burst")
    run = with_bursts(runs.train(case, with_profile(MEASURES, profile), plan.burst_steps))
    cost = steps.cost(run)
    number = steps.bursts_within(LONG)
    found.add("burst and check, in steps", cost.in_steps, Bar(14))
    found.add("the same, CPU", cost.in_steps_by_cpu)
    share = (number * cost.in_steps + cost.watches_in_steps) / LONG
    found.add(f"share of {LONG} steps, {number} bursts, {len(steps.WATCHES)} watches", share, Bar(0.01))
    found.add("the same, CPU", (number * cost.in_steps_by_cpu + cost.watches_in_steps_by_cpu) / LONG)
    codec, of_steps, least = [], [], []
    for pair in range(plan.pairs):
        confs = [UNIFORM, with_profile(UNIFORM, runs.copy_of(profile))]
        both = runs.side_by_side(case, confs, plan.codec_steps, turned=pair % 2 == 1)
        codec.append(statistics.median(steps.ratios(*map(steps.codec_ns, both))))
        of_steps.append(statistics.median(steps.ratios(*(one["step_cpu_seconds"][steps.SETTLED :] for one in both))))
        least.append([min(steps.codec_ns(one)) for one in both])
    found.add("encode + decode over uniform 4's", statistics.median(codec), Bar(1.15))
    # Of all pairs: what others do to the machine lengthens steps, and shortens none.
    uniform, profiled = (min(side) for side in zip(*least))
    found.add("the same, by the fastest steps", profiled / uniform)
    found.add("CPU of a step over uniform 4's", statistics.median(of_steps))
    found.runs = {
        "cost": vars(cost), "codec_ratios": codec, "least_codec_ns": least, "cpu_ratios": of_steps, "batch": run["batch"]
    }  # fmt: skip
    return found


def whole(case: Case, plan: Plan, runs: Runs) -> Found:
    """The share of all steps by a run of that length, with the bursts that come by themselves."""
    found = Found()
    expected = steps.bursts_within(plan.long_steps)
    run = with_bursts(runs.train(case, f"bits:{BITS},sensitivity:on", plan.long_steps), expected)
    cost = steps.cost(run)
    seconds = sum(steps.of_counter(run, "sensitivity.seconds"))
    count = len(steps.bursts(run))
    # A watch that finds the last measurement stale has it made again.
    found.add(f"bursts in {plan.long_steps} steps", count, Bar(low=expected))
    found.add(f"share of {plan.long_steps} steps, run whole", seconds / (sum(run["step_seconds"]) - seconds), Bar(0.01))
    found.add("the same, CPU", steps.extra_cpu_steps(run) / plan.long_steps)
    found.runs = {"cost": vars(cost), "batch": run["batch"], "extra_passes": sum(steps.of_counter(run, "sensitivity.passes"))}
    return found


# --- memory --------------------------------------------------------------------------------------------------------


def memory(case: Case, plan: Plan, runs: Runs) -> Found:
    """Requested peaks of the step with a burst, beside those of the same step of a run without: both have the same
    weights, batch and widths until then."""
    found = Found()
    profile = runs.profile_of(case, "burst")
    run = with_bursts(runs.train(case, with_profile(MEASURES, profile), plan.burst_steps))
    without = runs.train(case, UNIFORM, plan.burst_steps)
    peaks, ordinary = (steps.of_counter(one, "requested_peak") for one in (run, without))
    burst, check = steps.bursts(run)[0], (steps.checks(run) or [None])[0]
    gradients = run["gradient_bytes"]
    found.add("burst's requested peak, less gradients", (peaks[burst] - gradients) / ordinary[burst], Bar(1.05, hard=True))
    found.add("burst's requested peak, whole", peaks[burst] / ordinary[burst])
    if check is not None:
        found.add("check's requested peak, whole", peaks[check] / ordinary[check])
    found.add("gradients, in ordinary peaks", gradients / ordinary[burst])
    found.runs = {
        "burst_step": burst + 1, "gradient_bytes": gradients, "requested_peaks": peaks,
        "requested_peaks_without": ordinary, "batch": run["batch"],
    }  # fmt: skip
    return found


# --- budget --------------------------------------------------------------------------------------------------------


def budget(case: Case, plan: Plan, runs: Runs) -> Found:
    """Peaks of segments beside budgets between the peaks at 2 bits and at 8. A run without a profile measures at the
    middle budget; runs at each of the budgets begin with its profile. Bits stand beside: the smallest widths hold many
    a budget, at the price of noise."""
    found = Found()
    low, high = (
        max(steps.of_counter(runs.train(case, f"bits:{bits}", 5), "reserved_peak")) for bits in (LOWEST, HIGHEST)
    )
    budgets = [int(low + part * (high - low)) for part in plan.parts]
    middle = budgets[len(budgets) // 2]
    profile = runs.profile_of(case, "budget")
    itself = with_bursts(runs.train(case, with_profile(f"{MEASURES},budget:{middle}", profile), plan.budget_steps))
    entry = kept(itself, middle) | {"burst_step": steps.bursts(itself)[0] + 1}
    after = entry["reserved_peaks"][steps.bursts(itself)[0] + 1 :]
    name = f"{middle / 1e6:.0f} MB, measured"
    found.add(f"{name}: steps above after the burst", sum(peak > middle for peak in after), Bar(0))
    add_end(found, name, entry)
    found.runs = {
        "peaks_at_bits": {LOWEST: low, HIGHEST: high}, "batch": itself["batch"],
        "measures_itself": entry, "with_profile": [],
    }  # fmt: skip
    for size in budgets:
        conf = with_profile(f"{UNIFORM},budget:{size}", runs.copy_of(profile))
        entry = kept(runs.train(case, conf, plan.profiled_steps), size)
        name = f"{size / 1e6:.0f} MB, profile"
        found.add(f"{name}: most over budget", max(entry["reserved_peaks"]) / size, Bar(1, hard=True))
        add_end(found, name, entry)
        found.runs["with_profile"].append(entry)
    return found


def kept(run: dict, size: int) -> dict:
    """How a run has kept its budget."""
    peaks = {f"{kind}_peaks": steps.of_counter(run, f"{kind}_peak") for kind in ("reserved", "requested", "payload")}
    return {"budget": size, **peaks, "mean_bits": run["pleat"]["sensitivity"]["bits"]}


def add_end(found: Found, name: str, entry: dict) -> None:
    over = [peak / entry["budget"] for peak in entry["reserved_peaks"][-SETTLED_BUDGET:]]
    found.add(f"{name}: last peaks over budget", over, Bar(1, 0.92))
    found.add(f"{name}: mean bits", entry["mean_bits"])


# --- stable --------------------------------------------------------------------------------------------------------


def stable(case: Case, plan: Plan, runs: Runs) -> Found:
    """How far the first and the last burst of a run agree."""
    path = runs.profile_of(case, "stable")
    refresh = "" if plan.stable_refresh is None else f",refresh:{plan.stable_refresh}"
    run = with_bursts(runs.train(case, with_profile(f"bits:{BITS},sensitivity:on{refresh}", path), plan.stable_steps), 2)
    at = [step + 1 for step in steps.bursts(run)]
    found = agreement(profiles.read(path), at[0], at[-1])
    found.runs |= {"bursts": at, "losses": [run["losses"][step - 1] for step in at], "batch": run["batch"]}
    return found


def agreement(profile: dict, early: int, late: int) -> Found:
    """Of the measurements of two steps: their rank correlation, and what noise several widths have by the later one,
    over the best widths for as many bytes. A greedy assignment is not quite the best: a little below 1 is possible."""
    found = Found()
    first, last = ranks.measured_in(profile, early), ranks.measured_in(profile, late)
    both = sorted(first.keys() & last.keys())
    correlation = ranks.spearman([first[key] for key in both], [last[key] for key in both])
    if math.isnan(correlation):
        raise Problem(f"{len(both)} tensors were measured in steps {early} and {late}: too few to compare")
    found.add(f"rank correlation, step {early} against {late}", correlation)
    # Pleat goes on with the mean of all bursts.
    estimates = {f"step {early}'s": first, "the mean's": profiles.noises(profile)}
    for bits in (2, 3, 4):
        for whose, noise in estimates.items():
            found.add(f"noise of {whose} widths, {bits} bits", profiles.regret(profile, last, noise, bits).ratio)
        found.add(f"noise of one width for all, {bits} bits", profiles.uniform_regret(profile, last, bits))
    units = {unit["key"]: profiles.described(unit) for unit in profile["units"]}
    found.runs["units"] = [{"unit": units[key], "first": first[key], "last": last[key]} for key in both]
    return found


# --- invisible -----------------------------------------------------------------------------------------------------


def invisible(case: Case, plan: Plan, runs: Runs) -> Found:
    """Without loss: a run with two bursts beside one with none, and beside stock. Steps unlike are counted from the first
    one on: what differs once stays so."""
    found = Found()
    conf = f"bits:lossless,sensitivity:on,refresh:{plan.exact_refresh}"
    run = with_bursts(runs.train(case, conf, plan.exact_steps, digests=True), 2)
    others = {"no burst": runs.train(case, "bits:lossless", plan.exact_steps, digests=True)}
    if plan.stock:
        others["stock"] = runs.train(case, None, plan.exact_steps, digests=True)
    at = [step + 1 for step in steps.bursts(run)]
    found.runs = {"bursts": at, "batch": run["batch"], "first_difference": {}}
    for name, other in others.items():
        differs = steps.first_difference(other, run)
        found.runs["first_difference"][name] = {what: None if i is None else i + 1 for what, i in differs.items()}
        for what, i in differs.items():
            count = 0 if i is None else plan.exact_steps - i
            found.add(f"{what}: steps unlike {name}'s", count, EQUAL)
    return found


ROWS: dict[str, Callable[[Case, Plan, Runs], Found]] = {
    "time": time,
    "whole": whole,
    "memory": memory,
    "budget": budget,
    "stable": stable,
    "invisible": invisible,
}
