"""The arithmetic of tools/bench/sensitivity_cost.py, and the counters of steps that it stands on; no training."""

import dataclasses
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

from conftest import REPOSITORY, STOCK_ONLY

BENCH = REPOSITORY / "tools" / "bench"
sys.path.insert(0, str(BENCH))

import harness  # noqa: E402
import pleat_counters  # noqa: E402
import sensitivity_cost  # noqa: E402
from sensitivity_cost_parts import ranks, rows, runs, steps  # noqa: E402


def run(passes, seconds, cpu=None, bursts=None, **more):
    """A run whose steps had so many extra passes, and took so long; Pleat's own counter has a tenth of it."""
    bursts = [1 if count == 16 else 0 for count in passes] if bursts is None else bursts
    counted = [
        {"sensitivity.passes": count, "sensitivity.bursts": burst, "sensitivity.seconds": second / 10 if count else 0.0,
         "time.encode_ns": 100 + 10 * i, "time.decode_ns": 50, "requested_peak": 1000 + i, "reserved_peak": 2000 + i,
         "payload_peak": 500}
        for i, (count, burst, second) in enumerate(zip(passes, bursts, seconds))
    ]  # fmt: skip
    return {"model": "x", "batch": 8, "steps": len(passes), "step_seconds": seconds, "step_cpu_seconds": cpu or seconds,
            "step_counters": counted, "gradient_bytes": 100, "pleat": {"sensitivity": {"refusals": ["a hook"], "bits": 3.0}}} | more  # fmt: skip


# --- bursts and what they cost ---


@pytest.mark.parametrize(("passes", "count"), [(9, 0), (10, 1), (999, 1), (1000, 2), (2999, 2), (3000, 3), (5000, 3), (7000, 4), (15000, 5)])
def test_bursts_come_in_the_passes_that_the_documentation_names(passes, count):
    assert "In the 10th pass over a graph, then in the 1000th, 3000th, 7000th" in (REPOSITORY / "docs" / "sensitivity.md").read_text()
    assert steps.bursts_within(passes) == count


def test_a_burst_a_check_and_ordinary_steps_are_told_apart():
    found = run([0] * 9 + [16, 2, 0, 0], [1.0] * 13)
    assert steps.bursts(found) == [9] and steps.checks(found) == [10]
    assert steps.ordinary(found) == [3, 4, 5, 6, 7, 8, 11, 12]


def test_a_watch_is_no_check_and_counts_among_the_extra_passes():
    found = run([0] * 3 + [16, 2, 0, 3, 0], [9.0, 9.0, 9.0, 20.0, 6.0, 2.0, 8.0, 2.0], [9.0, 9.0, 9.0, 20.0, 6.0, 2.0, 8.0, 2.0])
    assert steps.checks(found) == [4] and steps.ordinary(found) == [5, 7]
    assert steps.extra_cpu_steps(found) == pytest.approx((18 + 4 + 6) / 2)


def test_the_cost_of_a_burst_is_counted_in_ordinary_steps():
    seconds = [9.0, 9.0, 9.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 200.0, 40.0, 2.0]
    cpu = [9.0, 9.0, 9.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 44.0, 12.0, 4.0]
    cost = steps.cost(run([0] * 9 + [16, 2, 0], seconds, cpu))
    assert cost.in_steps == pytest.approx((20 + 4) / 2)  # by Pleat's own counter
    assert cost.in_steps_by_cpu == pytest.approx((40 + 8) / 4)  # above an ordinary step


def test_the_cost_of_several_bursts_is_their_mean():
    cost = steps.cost(run([0, 0, 0, 0, 16, 2, 0, 16, 2], [1.0, 1.0, 1.0, 1.0, 10.0, 2.0, 1.0, 30.0, 4.0]))
    assert cost.burst_seconds == pytest.approx(2) and cost.check_seconds == pytest.approx(0.3)


def test_time_in_the_codec_leaves_out_the_first_steps_and_is_compared_step_by_step():
    one = run([0] * 5, [1.0] * 5)
    assert steps.codec_ns(one) == [180, 190]
    assert steps.ratios([180, 190], [90, 380]) == [0.5, 2]
    with pytest.raises(ValueError):
        steps.ratios([1], [1, 2])


def test_a_run_without_the_bursts_it_should_have_says_why():
    with pytest.raises(harness.Problem, match="0 bursts in 12 steps instead of 1: a hook"):
        rows.with_bursts(run([0] * 12, [1.0] * 12))


# --- what differs ---


def digests(gradients, weights="same", state="same"):
    return [{"gradients": g, "weights": weights, "random state": state} for g in gradients]


def test_the_first_step_that_differs_is_found_for_each_thing_that_is_compared():
    one = {"losses": [1.0, float("nan"), 0.0], "step_digests": digests("abc")}
    other = {"losses": [1.0, float("nan"), -0.0], "step_digests": digests("abd")}
    assert steps.first_difference(one, one) == {"losses": None, "gradients": None, "weights": None, "random state": None}
    assert steps.first_difference(one, other) == {"losses": 2, "gradients": 2, "weights": None, "random state": None}


def test_runs_without_digests_or_of_other_lengths_are_not_called_equal():
    one = {"losses": [1.0], "step_digests": []}
    with pytest.raises(ValueError):
        steps.first_difference(one, one)
    with pytest.raises(ValueError):
        steps.first_difference({"losses": [1.0], "step_digests": digests("a")}, {"losses": [1.0, 2.0], "step_digests": digests("ab")})


# --- ranks ---


def test_rank_correlation_is_the_one_of_scipy_with_ties_too():
    stats = pytest.importorskip("scipy.stats")
    draw = random.Random(5)
    for _ in range(20):
        one = [draw.choice([0.0, 1e-9, 3.0, draw.random()]) for _ in range(30)]
        other = [draw.choice([value, draw.random()]) for value in one]
        assert ranks.spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic, abs=1e-12)


def test_rank_correlation_of_closed_forms():
    assert ranks.spearman([1, 2, 3, 4], [10, 20, 30, 4000]) == pytest.approx(1)
    assert ranks.spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert ranks.spearman([1, 2, 3], [1, 3, 2]) == pytest.approx(0.5)
    assert math.isnan(ranks.spearman([1, 2], [1, 2])) and math.isnan(ranks.spearman([1, 1, 1], [1, 2, 3]))


def test_measurements_of_one_burst_are_found_by_its_step():
    profile = {"units": [{"key": "a", "measurements": [[10, 1.0], [1000, 2.0]]}, {"key": "b", "measurements": [[10, 3.0]]}, {"key": "c"}]}
    assert ranks.steps_measured(profile) == [10, 1000]
    assert ranks.measured_in(profile, 10) == {"a": 1.0, "b": 3.0} and ranks.measured_in(profile, 1000) == {"a": 2.0}


# --- rows, from runs that are made up ---


class MadeUp:
    """In the place of Runs: results by what the configuration holds."""

    def __init__(self, folder, answers):
        self.folder, self.answers = folder, answers

    def profile_of(self, case, name):
        return self.folder / name

    def copy_of(self, profile):
        return self.folder / "copy"

    def train(self, case, conf, count, digests=False):
        return next(answer for part, answer in self.answers.items() if part in (conf or "stock"))


def values(found):
    return {row.measure: (row.values, row.verdict) for row in found.rows}


def test_the_peak_of_a_burst_may_be_higher_by_the_gradients_and_a_twentieth(tmp_path):
    def verdict(burst_peak):
        measured = run([0] * 9 + [16, 2], [1.0] * 11)
        measured["step_counters"][9]["requested_peak"] = burst_peak
        plain = run([0] * 11, [1.0] * 11)
        plain["step_counters"][9]["requested_peak"] = 1000
        found = values(rows.memory(runs.Case("x"), rows.Plan(), MadeUp(tmp_path, {"sensitivity": measured, "bits:4": plain})))
        return found["burst's requested peak, less gradients"]

    assert verdict(1150) == ([1.05], "holds")
    assert verdict(1160)[1] == "MISSED"


def test_a_budget_is_missed_by_one_step_above_it_and_by_peaks_far_below(tmp_path):
    def with_peaks(peaks):
        found = run([0] * len(peaks), [1.0] * len(peaks))
        for step, peak in zip(found["step_counters"], peaks):
            step["reserved_peak"] = peak
        return found

    def found(profiled):
        itself = run([0] * 9 + [16, 2, 0, 0, 0], [1.0] * 14)
        for step, peak in zip(itself["step_counters"], [1300] * 12 + [1400, 1500]):
            step["reserved_peak"] = peak
        answers = {"sensitivity": itself, "budget": with_peaks(profiled), "bits:2": with_peaks([1000] * 5), "bits:8": with_peaks([2000] * 5)}
        return values(rows.budget(runs.Case("x"), dataclasses.replace(rows.Plan(), parts=(0.4,)), MadeUp(tmp_path, answers)))

    good = found([1390, 1400, 1350, 1300])
    assert good["0 MB, profile: most over budget"] == ([1.0], "holds")
    assert good["0 MB, profile: last peaks over budget"][1] == "holds"
    assert good["0 MB, profile: mean bits"] == ([3.0], "")
    assert good["0 MB, measured: steps above after the burst"] == ([1], "MISSED")
    assert found([1401, 1400, 1350, 1300])["0 MB, profile: most over budget"][1] == "MISSED"
    assert found([1390, 1400, 1350, 1200])["0 MB, profile: last peaks over budget"][1] == "MISSED"


@pytest.mark.skipif(STOCK_ONLY, reason="needs the command")
def test_widths_are_judged_by_the_later_measurement(build_dir, monkeypatch):
    monkeypatch.setenv("PLEAT_BUILD_DIR", str(build_dir))
    # Two bursts see three tensors of one size in opposite orders. At 4 bits on average one gets 8 bits, and the others
    # pay for it: by the first burst that is "a", by the second "c".
    costs = [[2, 200, 25.0], [4, 400, 1.0], [8, 800, 0.004], [0, 3200, 0]]
    units = [
        {"key": f"0x{key:016x}", "producer": "P", "reader": "R", "type": "float32", "shape": [100, 8], "tensors": 1, "bytes": 3200,
         "payload_bytes": 400, "width": 4, "costs": costs, "measurements": [[10, early], [1000, late]]}
        for key, early, late in ((10, 1.0, 1e-6), (11, 1e-3, 1e-3), (12, 1e-6, 1.0))
    ]  # fmt: skip
    profile = {"pleat_profile": 1, "torch": "2.11.0", "steps": 1000, "bits": 4, "passes": 0, "seconds": 0, "units": units}
    agreement = rows.agreement(profile, 10, 1000)
    found = values(agreement)
    assert found["rank correlation, step 10 against 1000"][0] == [pytest.approx(-1)]
    # The best: c at 8, a and b at 2. By the first: a at 8, b and c at 2.
    best = 1.0 * 0.004 + 25 * 1e-3 + 25 * 1e-6
    assert found["noise of step 10's widths, 4 bits"][0] == [pytest.approx((25 * 1.0 + 25 * 1e-3 + 0.004 * 1e-6) / best)]
    assert found["noise of one width for all, 4 bits"][0] == [pytest.approx((1.0 + 1e-3 + 1e-6) / best)]
    assert [unit["last"] for unit in agreement.runs["units"]] == [1e-6, 1e-3, 1.0]


# --- counters of steps ---


def test_steps_have_what_they_add_and_their_own_peaks(monkeypatch):
    readings = iter([(10, 500), (25, 700), (27, 600)])
    resets = []

    class Bridge:
        def pleat_reset_peaks(self):
            resets.append(True)

    def read(_):
        encode, peak = next(readings)
        return {"time": {"encode_ns": encode}, "bytes": {"requested": {"peak": peak}}}

    monkeypatch.setattr(pleat_counters, "_bridge_of_this_process", Bridge)
    monkeypatch.setattr(pleat_counters, "_read", read)
    counters = pleat_counters.StepCounters()
    for _ in range(2):
        counters.begin()
        counters.end()
    assert [step["time.encode_ns"] for step in counters.steps] == [15, 2] and len(resets) == 2
    assert [step["requested_peak"] for step in counters.steps] == [700, 600]


def test_without_pleat_steps_have_no_counters(monkeypatch):
    monkeypatch.setattr(pleat_counters, "_bridge_of_this_process", lambda: None)
    counters = pleat_counters.StepCounters()
    counters.begin()
    counters.end()
    assert counters.steps == []


# --- the command ---


def command(*arguments):
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run([sys.executable, "-X", "importtime", str(BENCH / "sensitivity_cost.py"), *arguments],
                          capture_output=True, text=True, env=environment)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rows", "magic"], "--rows: no row named"),
        (["--rows", ","], "--rows: no row is named"),
        (["--model", "resnet51"], "--model: no model named"),
        (["--batch", "0"], "at least 1"),
        (["--pairs", "0"], "at least 1"),
        (["--lib", "nowhere.so"], "no such file"),
        (["--keep", "/nonexistent-folder"], "no such folder"),
        (["--keep", "/"], "not empty"),
        (["--json", "/nonexistent-folder/x.json"], "cannot write"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, words):
    done = command(*arguments)
    said = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == 2 and len(said) == 1 and words in said[0], said


def test_help_shows_examples_and_imports_no_torch():
    done = command("--help")
    assert done.returncode == 0 and "examples:" in done.stdout
    assert all(row in done.stdout for row in rows.ROWS)
    assert not any(line.rstrip().endswith("| torch") for line in done.stderr.splitlines())


def test_rows_models_and_batches_make_up_what_is_run():
    def cases(**chosen):
        usual = {"rows": None, "model": None, "batch": None, "quick": False}
        return sensitivity_cost.cases_of(sensitivity_cost.argparse.Namespace(**usual | chosen))

    assert cases() == sensitivity_cost.CASES and set(cases()) == set(rows.ROWS)
    assert "whole" not in cases(quick=True)
    assert cases(rows="stable", model="digits,vit") == {"stable": [runs.Case("digits", 64), runs.Case("vit")]}
    assert cases(rows="memory", model="chargpt", batch=3) == {"memory": [runs.Case("chargpt", 3)]}


def test_runs_that_are_asked_for_twice_run_once(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(harness, "train", lambda row, options, *rest: started.append((row.conf, options)) or {"number": len(started)})
    found = runs.Runs(tmp_path / "lib", tmp_path, 2, 0)
    case = runs.Case("chargpt", 4)
    assert found.train(case, "bits:4", 9)["number"] == found.train(case, "bits:4", 9)["number"] == 1
    assert found.train(case, None, 9, digests=True)["number"] == 2
    assert started[0] == ("bits:4", ["--model", "chargpt", "--steps", "9", "--seed", "0", "--step-counters", "--batch", "4"])
    assert started[1][0] is None and "--step-digests" in started[1][1]


def test_a_path_of_any_kind_can_be_a_profiles():
    # As the package spells paths: quoted, with quotes and backslashes escaped.
    assert runs.with_profile("bits:4", pathlib.Path('/a,b "c"\\d')) == 'bits:4,profile:"/a,b \\"c\\"\\\\d"'


def test_result_files_have_no_path_of_a_machine():
    files = list((BENCH / "results").glob("sensitivity_cost_*.json"))
    assert files
    for path in files:
        assert json.loads(path.read_text())["rows"] and not re.search(r'[:" ]/\w', path.read_text())


def test_digests_of_a_step_tell_gradients_weights_and_random_numbers_apart():
    code = (
        "import torch, train\n"
        "model = torch.nn.Linear(3, 2)\n"
        "model(torch.ones(1, 3)).sum().backward()\n"
        "first = train.step_digests(model)\n"
        "assert first == train.step_digests(model)\n"
        "def differs():\n"
        "    return {what for what, digest in train.step_digests(model).items() if digest != first[what]}\n"
        "model.weight.grad[0, 0] += 1e-7\n"
        "assert differs() == {'gradients'}, differs()\n"
        "model.weight.grad[0, 0] = 1\n"
        "model.bias.data[1] += 1e-7\n"
        "assert differs() == {'weights'}, differs()\n"
        "torch.rand(1)\n"
        "assert differs() == {'weights', 'random state'}, differs()\n"
        "model.weight.grad = None\n"
        "assert 'gradients' in differs()\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    done = subprocess.run([sys.executable, "-c", code], cwd=BENCH, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
