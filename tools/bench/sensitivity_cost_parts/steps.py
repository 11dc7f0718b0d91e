"""What follows from the steps of a run of train.py with --step-counters: which of them had a burst or a check, what
these took, how high each rose. Steps are numbered from 0 here. Torch-free."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

SETTLED = 3  # the first steps learn proofs and leaves, and make the optimizer's state
FIRST_BURST, SECOND_BURST = 10, 1000  # passes over a graph, as docs/sensitivity.md has them
WATCHES = (40, 160, 640)  # likewise, of three passes each, where a check has two


def bursts_within(steps: int) -> int:
    """How often a graph is measured in so many passes: in the 10th, 1000th, 3000th, 7000th, ..."""
    count, at, interval = 0, FIRST_BURST, SECOND_BURST - FIRST_BURST
    while at <= steps:
        count += 1
        at += interval
        interval = 2 * SECOND_BURST if at == SECOND_BURST else 2 * interval
    return count


def of_counter(run: dict, name: str) -> list[float]:
    """What each step has added to a counter, or its peak."""
    return [step[name] for step in run["step_counters"]]


def bursts(run: dict) -> list[int]:
    return [i for i, added in enumerate(of_counter(run, "sensitivity.bursts")) if added > 0]


def checks(run: dict) -> list[int]:
    """Steps with extra passes that come behind a burst."""
    passes, with_burst = of_counter(run, "sensitivity.passes"), set(bursts(run))
    return [i for i, added in enumerate(passes) if added > 0 and i not in with_burst and i - 1 in with_burst]


def extra_cpu_steps(run: dict) -> float:
    """The CPU time of all extra passes of a run, in ordinary steps."""
    cpu, passes = run["step_cpu_seconds"], of_counter(run, "sensitivity.passes")
    step = statistics.median(cpu[i] for i in ordinary(run))
    return sum(cpu[i] - step for i, added in enumerate(passes) if added > 0) / step


def ordinary(run: dict) -> list[int]:
    """Steps without extra passes, the first few left out."""
    return [i for i, added in enumerate(of_counter(run, "sensitivity.passes")) if added == 0 and i >= SETTLED]


@dataclass(frozen=True)
class Cost:
    """What one burst and its check add to a run, in the mean over its bursts; and an ordinary step beside it."""

    burst_seconds: float  # by Pleat's own counter
    check_seconds: float
    burst_cpu_seconds: float  # of the process, above an ordinary step's
    check_cpu_seconds: float
    step_seconds: float  # medians
    step_cpu_seconds: float

    @property
    def watches_in_steps(self) -> float:
        """All watches of a run that finds nothing stale."""
        return len(WATCHES) * 1.5 * self.check_seconds / self.step_seconds

    @property
    def watches_in_steps_by_cpu(self) -> float:
        return len(WATCHES) * 1.5 * self.check_cpu_seconds / self.step_cpu_seconds

    @property
    def in_steps(self) -> float:
        return (self.burst_seconds + self.check_seconds) / self.step_seconds

    @property
    def in_steps_by_cpu(self) -> float:
        return (self.burst_cpu_seconds + self.check_cpu_seconds) / self.step_cpu_seconds


def cost(run: dict) -> Cost:
    """Of a run with a burst at least."""
    with_burst, with_check, others = bursts(run), checks(run), ordinary(run)
    seconds, cpu, own = run["step_seconds"], run["step_cpu_seconds"], of_counter(run, "sensitivity.seconds")
    step = statistics.median(seconds[i] for i in others)
    cpu_step = statistics.median(cpu[i] for i in others)
    count = len(with_burst)
    return Cost(
        burst_seconds=sum(own[i] for i in with_burst) / count,
        check_seconds=sum(own[i] for i in with_check) / count,
        burst_cpu_seconds=sum(cpu[i] - cpu_step for i in with_burst) / count,
        check_cpu_seconds=sum(cpu[i] - cpu_step for i in with_check) / count,
        step_seconds=step,
        step_cpu_seconds=cpu_step,
    )


def codec_ns(run: dict) -> list[float]:
    """Nanoseconds in encode and decode of each step, the first few left out: in the third one a run with a profile notes
    who is who."""
    both = zip(of_counter(run, "time.encode_ns"), of_counter(run, "time.decode_ns"), strict=True)
    return [encode + decode for encode, decode in both][SETTLED:]


def ratios(one: list[float], other: list[float]) -> list[float]:
    """Step by step, of two runs that took turns."""
    return [b / a for a, b in zip(one, other, strict=True)]


def first_difference(one: dict, other: dict) -> dict[str, int | None]:
    """Of losses, gradients, weights and torch's random state: the first step in which two runs differ, or None."""
    found: dict[str, int | None] = {
        # As text: NaN equals itself, and -0.0 is not 0.0.
        "losses": _first(list(map(repr, one["losses"])), list(map(repr, other["losses"])))
    }
    for what in ("gradients", "weights", "random state"):
        found[what] = _first(*([step[what] for step in run["step_digests"]] for run in (one, other)))
    return found


def _first(one: list, other: list) -> int | None:
    if not one or len(one) != len(other):
        raise ValueError(f"{len(one)} and {len(other)} steps")
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), None)
