"""What tools/bench/accuracy.py concludes from its runs: intervals, shares, and which rows are none. No training."""

import math
import sys

import pytest

from conftest import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tools" / "bench"))

import accuracy  # noqa: E402
from accuracy_parts import figures  # noqa: E402


# --- intervals ---


# From tables of Student's t, two-sided.
@pytest.mark.parametrize(
    "freedom, t95, t99",
    [(1, 12.706, 63.657), (2, 4.303, 9.925), (3, 3.182, 5.841), (9, 2.262, 3.250), (10, 2.228, 3.169), (30, 2.042, 2.750)],
)
def test_quantiles_are_those_of_the_tables(freedom, t95, t99):
    assert figures.quantile(0.95, freedom) == pytest.approx(t95, abs=6e-4)
    assert figures.quantile(0.99, freedom) == pytest.approx(t99, abs=6e-4)


def test_the_interval_of_students_own_ten_patients_is_the_published_one():
    # Cushny and Peebles 1905, in Student 1908; the interval as R's manual of t.test prints it.
    hours = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    found = figures.interval(hours)
    assert found.mean == pytest.approx(1.58)
    assert (found.low, found.high) == pytest.approx((0.7001142, 2.4598858), abs=1e-6)


@pytest.mark.parametrize(
    "low, high, harmless",
    [
        (-3, 2, True), (0, 4, True), (-4, 0, True),  # 0 is in it
        (0.1, 0.5, True), (-0.5, -0.1, True),  # small
        (0.1, 0.6, False), (-0.6, -0.1, False), (2, 3, False), (math.nan, math.nan, False),
    ],
)  # fmt: skip
def test_a_difference_is_harmless_if_it_may_be_none_or_is_small(low, high, harmless):
    assert figures.Interval((low + high) / 2, low, high).harmless(0.5) is harmless


def test_a_loss_that_is_not_finite_misses_the_bar():
    stock = [run(seed, 98, 0.1) for seed in range(3)]
    side = [run(seed, 98, math.inf if seed == 1 else 0.1, pleat=counters()) for seed in range(3)]
    row = figures.row_of("task", "side", stock, side, adaptive=True, has_bar=True)
    assert row.verdict == "MISSED" and row.far_off(3, 30)


# --- rows ---


def counters(codec=None, recomputed=0, **sensitivity):
    measured = {"units": 8, "measured": 8, "distrusted": 0, "bits": 3.9, "noise": 0.001, "uniform_noise": 0.002, "bursts": 1,
                "passes": 18, "refusals": []}  # fmt: skip
    return {
        "enabled": 1,
        "codec": {name: {"source_bytes": (codec or {"lossy_fp32": 9500}).get(name, 0)} for name in figures.CLASSES},
        "records": {"recomputed_bytes": recomputed},
        "sensitivity": measured | sensitivity,
    }


def run(seed, accuracy=98.0, loss=0.1, pleat=None, masks=0):
    return {"seed": seed, "accuracy": accuracy, "test_loss": loss, "steps": 10, "pleat": pleat,
            "saved": {"bytes": 1000, "masks": masks}}  # fmt: skip


def row(stock, side, adaptive=True):
    return figures.row_of("task", "side", stock, side, adaptive, has_bar=True)


def test_differences_are_paired_by_seed_in_points_and_in_percent_of_stocks_loss():
    stock = [run(0, 90.0, 0.2), run(1, 98.0, 0.6)]  # seeds differ by more than any difference
    side = [run(0, 91.0, 0.21, counters()), run(1, 99.0, 0.61, counters())]
    found = row(stock, side)
    assert found.accuracy.mean == pytest.approx(1.0) and found.accuracy.low == pytest.approx(1.0)
    assert found.loss.mean == pytest.approx(2.5) and found.loss.high == pytest.approx(2.5)  # 0.01 of 0.4
    assert found.verdict == "MISSED"
    with pytest.raises(ValueError):
        row(stock, side[::-1])


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"bursts": 0}, "no burst"),
        ({"passes": 0}, "no burst"),
        ({"measured": 0}, "no unit"),
        ({"measured": 7}, "only 7 of 8"),
        ({"measured": 5, "distrusted": 2}, "only 7 of 8"),
        ({"bits": 0}, "no bits"),
        ({"refusals": ["a hook on a gradient"]}, "a hook on a gradient"),
    ],
)
def test_a_run_in_which_little_was_measured_is_no_adaptive_one(changed, words):
    stock = [run(0), run(1)]
    side = [run(0, pleat=counters()), run(1, pleat=counters(**changed))]
    found = row(stock, side)
    assert found.verdict.startswith("FAILED") and words in found.verdict and "1 of 2" in found.verdict
    assert found.far_off(3, 30) and not found.counts
    assert row(stock, side, adaptive=False).verdict == "holds"  # a uniform width measures nothing


def test_a_unit_that_a_check_distrusts_was_measured():
    side = [run(seed, pleat=counters(measured=5, distrusted=3)) for seed in (0, 1)]
    assert row([run(0), run(1)], side).verdict == "holds"


@pytest.mark.parametrize("pleat, words", [(None, "not active"), (counters() | {"enabled": 0}, "switched off")])
def test_a_run_without_pleat_is_no_row_of_pleat(pleat, words):
    found = row([run(0), run(1)], [run(0, pleat=pleat), run(1, pleat=pleat)], adaptive=False)
    assert found.verdict.startswith("FAILED") and words in found.verdict


def test_the_share_counts_what_is_noisy_recomputed_sides_shapes_and_masks():
    codec = {"lossy_fp32": 3000, "lossy_16bit": 1000, "sides": 500, "nothing": 250, "lossless_float": 1500}
    stock, side = run(0, masks=150), run(0, pleat=counters(codec, recomputed=750))
    # Of 10 steps of 1000 bytes each.
    assert figures.lossy_share(stock, side) == pytest.approx((300 + 100 + 50 + 25 + 75 + 150) / 1000)


def test_of_what_is_without_loss_no_more_than_the_masks_counts():
    codec = {"lossy_fp32": 8000, "lossless_float": 2000}
    assert figures.lossy_share(run(0, masks=30), run(0, pleat=counters(codec))) == pytest.approx(0.83)
    assert figures.lossy_share(run(0, masks=900), run(0, pleat=counters(codec))) == pytest.approx(1.0)


def test_bits_paid_are_bytes_over_elements_of_all_that_is_noisy():
    noisy = counters()
    noisy["codec"]["lossy_fp32"] = {"elements": 300, "payload_bytes": 150, "source_bytes": 1200}
    noisy["codec"]["lossy_16bit"] = {"elements": 100, "payload_bytes": 100, "source_bytes": 200}
    assert figures.bits_paid(run(0, pleat=noisy)) == pytest.approx(5.0)
    for name in ("lossy_fp32", "lossy_16bit"):
        noisy["codec"][name] = {"elements": 0, "payload_bytes": 0, "source_bytes": 0}
    assert figures.bits_paid(run(0, pleat=noisy)) == 0


def test_a_row_of_which_too_little_was_lossy_does_not_count_however_good():
    stock = [run(0), run(1)]
    exact = counters({"lossy_fp32": 8990})
    found = row(stock, [run(0, pleat=counters()), run(1, pleat=exact)])
    assert found.share == pytest.approx(0.899) and found.verdict == "does not count" and found.far_off(3, 30)


def test_two_seeds_see_what_is_off_by_far_and_nothing_less():
    def far_off(accuracy, loss):  # beside 98 % and 0.1
        return row([run(0), run(1)], [run(seed, accuracy, loss, counters()) for seed in (0, 1)]).far_off(3, 30)

    assert not far_off(97, 0.12) and not far_off(99, 0.01)
    assert far_off(94, 0.1) and far_off(98, 0.15) and far_off(98, math.nan)


# --- stock ---


def test_a_stock_that_has_not_learned_is_named():
    goal = accuracy.Goal((1, 1), accuracy=97)
    assert goal.missed([run(0, 96.0), run(1, 98.5)]) is None and "96.50" in goal.missed([run(0, 96.0), run(1, 97.0)])
    text = accuracy.Goal((1, 1), entropy=0.8)
    assert text.missed([run(0, 40, 2.3) | {"unigram_entropy": 3.0}]) is None
    assert "2.500" in text.missed([run(0, 40, 2.5) | {"unigram_entropy": 3.0}])
    assert text.missed([run(0, 40, math.nan) | {"unigram_entropy": 3.0}])


def test_the_census_counts_each_storage_once_and_no_parameter():
    torch = pytest.importorskip("torch")
    from accuracy_parts import census

    layer = torch.nn.Linear(4, 8)
    x, mask = torch.randn(16, 4), (torch.arange(128).view(16, 8) % 2).float()

    def loss():
        # Saved: x (256 bytes), relu's result (512) by relu and by both products, the mask (512), integers.
        hidden = layer(x).relu()
        return (hidden * mask + hidden * hidden)[torch.arange(3)].sum()

    assert census.saved_floats(layer, loss) == {"bytes": 256 + 512 + 512, "masks": 512}


def test_every_task_of_the_program_can_be_built_and_the_held_out_half_is_not_trained_on():
    pytest.importorskip("torch")
    from accuracy_parts import tasks

    assert set(tasks._BUILDERS) == set(accuracy.TASKS)
    pytest.importorskip("sklearn")
    digits = tasks.Digits()
    assert sorted(digits.training.tolist() + digits.testing.tolist()) == list(range(1797))
    assert abs(len(digits.training) - len(digits.testing)) == 1


def test_neighbours_are_linked_both_ways_and_once():
    torch = pytest.importorskip("torch")
    from accuracy_parts import tasks

    # On a line, at 0, 1, 3 and 7: the nearest of each is 1, 0, 1 and 3.
    edges = tasks.nearest_neighbours(torch.tensor([[0.0], [1.0], [3.0], [7.0]]), 1)
    assert set(map(tuple, edges.T.tolist())) == {(0, 1), (1, 0), (2, 1), (1, 2), (3, 2), (2, 3)}
    assert edges.shape[1] == 6
