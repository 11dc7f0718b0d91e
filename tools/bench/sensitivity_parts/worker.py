"""One process under Pleat that measures one model: started by tools/bench/sensitivity.py, which reads its JSON.

Three tasks. `train` trains the model with exact saved tensors and keeps its weights. `measure` takes these and one
fixed batch: bursts, the truth by one pass for each unit, gradient noise of uniform and adaptive widths. `check` lets
bursts and their check pass run as a user would have them, at each of the bits in turn.

Pleat draws other noise in every forward pass, so repeated passes over one batch, with one state of torch's random
generator, differ by that noise alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import pathlib
import shutil
import statistics
import sys
import time
from collections.abc import Callable

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH.parents[1] / "torch_bridge" / "python")]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pleat  # noqa: E402
import torch  # noqa: E402

from harness import Problem  # noqa: E402
from sensitivity_parts import paper, profiles, trials  # noqa: E402
from sensitivity_parts.paper import PaperRounding  # noqa: E402

FIRST_MEASURED_BATCH = 10_001  # training uses smaller numbers
BITS = (2, 3, 4)
SETTLING = 4  # passes before draws count: until then proofs and rows of a new setting may be learned
ALONE_DRAWS = 3


# --- one fixed batch ------------------------------------------------------------------------------------


class Lab:
    """A trained model and one batch, whose gradient is worked out again and again."""

    def __init__(self, name: str, quick: bool, weights: pathlib.Path, seed: int) -> None:
        self.work = trials.build(name, quick)
        self.work.model.load_state_dict(torch.load(weights))
        self.batch = self.work.batch(FIRST_MEASURED_BATCH + seed)
        self.seed = seed
        self.parameters = [p for p in self.work.model.parameters() if p.requires_grad]
        self.exact: torch.Tensor | None = None  # g*
        self.seconds: list[float] = []  # of each pass, forward and backward
        self.cpu_seconds: list[float] = []

    def gradient(self) -> torch.Tensor:
        """Of all parameters, in a row. The same random numbers every time."""
        torch.manual_seed(self.seed)
        for parameter in self.parameters:
            parameter.grad = None
        start, cpu_start = time.perf_counter(), time.process_time()
        self.work.loss(self.batch).backward()
        self.seconds.append(time.perf_counter() - start)
        self.cpu_seconds.append(time.process_time() - cpu_start)
        return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.parameters])

    def take_exact(self) -> dict:
        """Works out g*, twice: are two exact passes equal?"""
        # The bars are in the noise of the whole gradient, whatever optimizer has trained the model.
        pleat.enable(bits="lossless", sensitivity="off", objective="gradient", profile="none")
        self.gradient()
        self.exact = self.gradient()
        again = self.gradient()
        return {
            "squared_norm": squared(self.exact),
            "exact_passes_are_equal": torch.equal(self.exact, again),
            "exact_passes_differ_by": squared(again - self.exact) / squared(self.exact),
        }

    def draws(self, count: int) -> dict:
        """Noise of `count` passes as Pleat is set now, relative to |g*|^2, and the bytes of a pass's payloads."""
        for _ in range(SETTLING):
            self.gradient()
        before = pleat.stats()["records"]["payload_bytes"]
        found = self.errors(count, contextlib.nullcontext)
        found["payload_bytes"] = (pleat.stats()["records"]["payload_bytes"] - before) / count
        return found

    def errors(self, count: int, around: Callable[[], contextlib.AbstractContextManager]) -> dict:
        """Noise and bias of `count` passes, each inside a new `around()`."""
        norm = squared(self.exact)
        noise = []
        summed = torch.zeros_like(self.exact, dtype=torch.float64)
        for _ in range(count):
            with around():
                error = self.gradient() - self.exact
            noise.append(squared(error) / norm)
            summed += error
        # The mean of the products of different draws: the squared bias, without the draws' own noise.
        bias = (squared(summed) / norm - sum(noise)) / (count * (count - 1))
        mean = statistics.fmean(noise)
        return {
            "noise": mean,
            "standard_error": statistics.stdev(noise) / math.sqrt(count),
            "bias_squared": bias,
            "bias_over_variance": bias / max(mean - bias, 1e-300),
            "draws": count,
        }


def squared(vector: torch.Tensor) -> float:
    """Its squared norm."""
    return float(vector.double().square().sum())


# --- bursts ---------------------------------------------------------------------------------------------


def state() -> dict:
    return pleat.stats()["sensitivity"]


def enable_kind(kind: str, **options: object) -> None:
    """pleat.enable() with a value of `sensitivity` that only tests and benches may choose."""
    of_tests = os.environ.get("PLEAT_TEST_CONF", "")
    os.environ["PLEAT_TEST_CONF"] = f"{of_tests},sensitivity:{kind}"
    try:
        pleat.enable(**options)
    finally:
        os.environ["PLEAT_TEST_CONF"] = of_tests


def burst(lab: Lab, kind: str, path: pathlib.Path, bits: str | float) -> dict:
    """Lets one burst run, into a profile of its own, and reports its cost. `kind`: a value of `sensitivity`. Where
    training is noisy, its check runs in the next pass, by the same measure."""
    pleat.enable(sensitivity="off")
    enable_kind(kind, bits=bits, refresh=0, profile=path)
    before = state()
    for _ in range(12):  # a graph is measured in its tenth pass, or at once
        lab.gradient()
        after = state()
        if after["bursts"] > before["bursts"]:
            break
    else:
        raise Problem(f"no burst has come: {'; '.join(after['refusals']) or 'without a reason'}")
    found = {
        "passes": after["passes"] - before["passes"],
        "seconds": after["seconds"] - before["seconds"],
        "units": after["measured"],
        "profile": pleat.profile(),
        "cpu_seconds": lab.cpu_seconds[-1],  # of the pass with the burst in it
        # Forward and backward, in the passes just before.
        "ordinary_seconds": statistics.median(lab.seconds[-9:-1] or [0]),
        "ordinary_cpu_seconds": statistics.median(lab.cpu_seconds[-9:-1] or [0]),
    }
    if bits != "lossless":
        lab.gradient()
        now = checked = state()
        found["cpu_seconds"] += lab.cpu_seconds[-1]
        for _ in range(2):  # where units are distrusted, the next passes check again
            lab.gradient()
            now = state()
        found["check"] = {
            "passes": checked["passes"] - after["passes"],
            "seconds": checked["seconds"] - after["seconds"],
            "predicted": checked["predicted"],
            "measured": checked["checked"],
            "distrusted": now["distrusted"],
        }
    return found


# --- tasks ----------------------------------------------------------------------------------------------


def train(options: argparse.Namespace) -> dict:
    pleat.enable(bits="lossless")
    work = trials.build(options.model, options.quick)
    plan = trials.training(options.model, options.quick)
    torch.manual_seed(1)
    losses, seconds, of_optimizer, cpu_of_optimizer = [], [], [], []
    while len(losses) < plan.steps or (
        statistics.fmean(losses[-20:]) >= plan.loss and len(losses) < 4 * plan.steps
    ):
        batch = work.batch(len(losses))
        start = time.perf_counter()
        loss = work.loss(batch)
        work.optimizer.zero_grad()
        loss.backward()
        middle, cpu_middle = time.perf_counter(), time.process_time()
        work.optimizer.step()
        of_optimizer.append(time.perf_counter() - middle)
        cpu_of_optimizer.append(time.process_time() - cpu_middle)
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item())
    torch.save(work.model.state_dict(), options.folder / "weights")
    return {
        "steps": len(losses),
        "loss": statistics.fmean(losses[-20:]),
        "losses": losses[:: max(1, len(losses) // 100)],
        "step_seconds": statistics.median(seconds),
        "optimizer_seconds": statistics.median(of_optimizer),
        "optimizer_cpu_seconds": statistics.median(cpu_of_optimizer),
        "parameters": sum(p.numel() for p in work.model.parameters()),
    }


def measure(options: argparse.Namespace) -> dict:
    lab = Lab(options.model, options.quick, options.folder / "weights", options.seed)
    found: dict = {"seed": options.seed}
    of_seed = options.folder / f"seed{options.seed}"
    of_seed.mkdir()
    bursts = [burst(lab, "on", of_seed / f"on{i}", options.measured_at) for i in range(options.bursts)]
    found["bursts"] = {"on": bursts}
    for kind in ("gact", "gact_code"):
        found["bursts"][kind] = [
            burst(lab, kind, of_seed / f"{kind}{i}", options.measured_at)
            for i in range(1 if options.quick else options.bursts)
        ]
    found["truth"] = [
        burst(lab, "exact", of_seed / f"exact{i}", options.measured_at) for i in range(options.truths)
    ]
    found.update(lab.take_exact())
    measure_noise(lab, of_seed, options, found)
    if options.seed == 0 and not options.quick:
        found["alone"] = measure_alone(lab, of_seed, found)
    return found


def measure_noise(lab: Lab, folder: pathlib.Path, options: argparse.Namespace, found: dict) -> None:
    """Uniform and adaptive widths; the latter by the first burst's profile, as a later run would have it."""
    found["uniform"], found["adaptive"] = {}, {}
    for bits in (*BITS, 8):
        pleat.enable(bits=bits, sensitivity="off", profile="none")
        found["uniform"][bits] = lab.draws(options.draws if bits != 4 else max(options.draws, options.bias_draws))
    # Pleat writes into the file that a run names: one copy for each set of bits.
    for bits in BITS:
        copy = folder / f"applied{bits}"
        shutil.copy(folder / "on0", copy)
        pleat.enable(bits=bits, sensitivity="off", profile=copy)
        entry = lab.draws(options.draws if bits != 4 else max(options.draws, options.bias_draws))
        entry |= as_assigned(lab, folder, bits)
        found["adaptive"][bits] = entry
    found["equal_noise"] = equal_noise(lab, folder, options, found["uniform"][4]["noise"])
    # Where a kernel takes an exponential of what it saved, the paper's rounding has no bounds.
    if not options.quick and options.model != "gpt":
        pleat.enable(bits="off", sensitivity="off", profile="none")
        random = torch.Generator().manual_seed(lab.seed)
        found["paper_uniform_2"] = lab.errors(options.draws, lambda: PaperRounding(2, random, loss=False))
        found["paper_uniform_8"] = lab.errors(options.draws, lambda: PaperRounding(8, random, loss=True))
        known = paper.sensitivities(lab.gradient, 4, lab.seed)
        found["paper_adaptive"] = {}
        for bits in BITS:
            widths = paper.assigned(known, bits)
            noisy = lab.errors(options.draws, lambda: PaperRounding(widths, random, loss=True))
            found["paper_adaptive"][bits] = {"widths": widths, **noisy}


def as_assigned(lab: Lab, folder: pathlib.Path, bits: float) -> dict:
    """What is predicted for the widths that are in force now, and for uniform ones."""
    path = folder / "now"
    path.write_text(json.dumps(pleat.profile()))
    assigned = profiles.assignment(path, bits)
    now = state()
    return {
        "predicted": assigned.noise,
        "predicted_by_pleat": now["noise"],
        "uniform_predicted": assigned.uniform_noise,
        "bytes": assigned.payload_bytes,
        "uniform_bytes": assigned.uniform_payload_bytes,
        "mean_bits": now["bits"],
        "widths": assigned.widths,
    }


def equal_noise(lab: Lab, folder: pathlib.Path, options: argparse.Namespace, noise: float) -> dict:
    """The bits at which adaptive widths have that noise: by bisection on the predicted curve, which is then shifted by
    what is measured there, and again. The fewest bits that were enough."""
    path = folder / "applied4"
    measured_over_predicted, steps = 1.0, []
    for attempt in range(1 if options.quick else 4):
        low, high = 1.0, 8.0
        while high - low > 0.01:
            middle = (low + high) / 2
            if profiles.assignment(path, middle).noise * measured_over_predicted > noise:
                low = middle
            else:
                high = middle
        copy = folder / f"equal{attempt}"
        shutil.copy(path, copy)
        pleat.enable(bits=round(high, 3), sensitivity="off", profile=copy)
        found = lab.draws(options.draws)
        predicted = profiles.assignment(path, high).noise
        steps.append({"bits": high, "predicted": predicted, "over_uniform_4": found["noise"] / noise, **found})
        measured_over_predicted = found["noise"] / predicted if predicted > 0 else 1.0
        if 0.9 <= steps[-1]["over_uniform_4"] <= 1.05:
            break
    enough = [step for step in steps if step["over_uniform_4"] <= 1.05]
    chosen = (
        min(enough, key=lambda step: step["bits"])
        if enough
        else min(steps, key=lambda step: abs(math.log(step["over_uniform_4"])))
    )
    return {"bits": chosen["bits"], "over_uniform_4": chosen["over_uniform_4"], "steps": steps}


def measure_alone(lab: Lab, folder: pathlib.Path, found: dict) -> list[dict]:
    """Each unit in turn is noisy, by the codec itself, and all others are exact: noise and bytes beside what the
    profile says of that width. So the noise of the extra passes is compared with real one, and the table of candidates
    with what the codec does."""
    profile = found["truth"][0]["profile"]
    truth = profiles.mean_of([burst["profile"] for burst in found["truth"]])
    norm = squared(lab.exact)

    def pass_with(name: str, content: dict) -> tuple[float, float]:
        path = folder / name
        path.write_text(json.dumps(content))
        pleat.enable(bits=4, sensitivity="off", profile=path)
        before = pleat.stats()["records"]["payload_bytes"]
        noise = statistics.fmean(squared(lab.gradient() - lab.exact) / norm for _ in range(ALONE_DRAWS))
        return noise, (pleat.stats()["records"]["payload_bytes"] - before) / ALONE_DRAWS

    _, others = pass_with("nothing", profiles.only(profile, "", 0))
    entries = []
    for unit in profile["units"]:
        for width, expected, error in unit.get("costs") or ():
            if width not in (2, 4) or width < unit.get("floor", 1):
                continue
            noise, taken = pass_with(f"only{unit['key']}-{width}", profiles.only(profile, unit["key"], width))
            entries.append(
                {
                    "unit": profiles.described(unit),
                    "width": width,
                    "noise": noise,
                    "predicted": truth.get(unit["key"], 0.0) * error,
                    "bytes": taken - others,
                    "expected_bytes": expected,
                }
            )
    return entries


def check(options: argparse.Namespace) -> dict:
    """A burst and its check at each of BITS, with noise in training; then what noise is left."""
    lab = Lab(options.model, options.quick, options.folder / "weights", options.seed)
    lab.take_exact()
    folder = options.folder / f"check{options.seed}"
    folder.mkdir()
    found: dict = {"seed": options.seed}
    for bits in BITS:
        path = folder / f"bits{bits}"
        measured = burst(lab, "on", path, bits)
        if bits == BITS[0]:  # the passes before the others have run at other bits
            found["forward_backward_seconds"] = measured["ordinary_seconds"]
            found["forward_backward_cpu_seconds"] = measured["ordinary_cpu_seconds"]
        pleat.enable(sensitivity="off")
        # What a check distrusts is at its default from then on, and counted in.
        path_now = folder / f"now{bits}"
        path_now.write_text(json.dumps(pleat.profile()))
        profile = profiles.read(path_now)
        widths = profiles.assignment(path_now, bits).widths
        found[bits] = {
            "burst_passes": measured["passes"],
            "seconds": measured["seconds"] + measured["check"]["seconds"],
            "cpu_seconds": measured["cpu_seconds"],
            "check": measured["check"],
            "distrusted_units": [profiles.described(u) for u in profile["units"] if u.get("distrusted")],
            "predicted": profiles.predicted(profile, widths, profiles.noises(profile)),
            **lab.draws(options.draws),
        }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--task", required=True, choices=("train", "measure", "check"))
    parser.add_argument("--model", required=True, choices=trials.NAMES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--bias-draws", type=int, default=0)
    parser.add_argument("--bursts", type=int, default=5)
    parser.add_argument("--truths", type=int, default=3)
    parser.add_argument("--measured-at", default="lossless")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if not pleat.is_enabled():
        print("Pleat is not active in this process", file=sys.stderr)
        return 2
    start = time.process_time()
    try:
        result = {"train": train, "measure": measure, "check": check}[options.task](options)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 2
    result["cpu_seconds"] = time.process_time() - start
    options.out.write_text(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
