"""PyTorch's operator and module tables as a gate: every sample forward, backward, double backward."""

import collections
import json
import os
import pathlib

import pytest

import conftest
from conftest import STOCK_ONLY
from draw import Draw

pytestmark = pytest.mark.not_as_shipped("the table's tensors are tiny, and its samples prove no noise harmless")

LOSSLESS = f"{conftest.LOSSLESS},copy_raw:1"  # also what has no shorter form is stored and restored
LOSSY = f"{conftest.LOSSY},copy_raw:1,rule:assumed"  # copy_raw: tiny tensors are quantised as well

SWEEP = pathlib.Path(__file__).with_name("sweep.py")


def sweep(runner, tmp_path, *, check, conf, subject, dtype="float32", device="cpu", only="", draw=Draw(), timeout=2400):
    report, progress = tmp_path / "report.json", tmp_path / "progress"
    result = runner.run(
        SWEEP,
        conf=conf,
        preload=subject == "pleat",
        timeout=timeout,
        args=[
            f"--check={check}",
            f"--subject={'stock' if STOCK_ONLY and subject == 'pleat' else subject}",
            f"--dtype={dtype}",
            f"--device={device}",
            f"--only={only}",
            f"--draw={draw.text}",
            *([f"--until={draw.until}"] if draw.until else []),
            f"--json={report}",
            f"--progress={progress}",
        ],
    )
    under_way = progress.read_text().strip() if progress.exists() else "start"
    assert report.exists(), f"died (exit {result.returncode}) at {under_way}\n{result.stderr[-4000:]}"
    return json.loads(report.read_text())


def in_words(name, report):
    """The outcome of a sweep, for the end of the session's output."""
    totals, excluded = report["totals"], collections.Counter(e["name"] for e in report["excluded"])
    dropped = sum(len(samples) for samples in report["dropped"].values())
    yield (f"operator table, {name}: {totals['samples']} of {totals['samples of the table']} samples "
           f"of {totals['operators and modules']} operators and modules, {totals['samples compared']} compared "
           f"({totals['double backwards compared']} twice backward), "
           f"{report['stats']['records']['encoded'] if report.get('stats') else 0} payloads, "
           f"{totals.get('operators and modules with changed tensors', 'no')} operators with changed tensors, "
           f"{totals.get('samples not reached', 0)} not reached, {len(report['failures'])} failures, {dropped} findings dropped as stock does not repeat itself, "
           f"{report['seconds']:.0f} s")  # fmt: skip
    for operator, count in sorted(excluded.items()):
        yield f"  excluded: {operator}, {count} findings (tests/operators/exclusions.py says why)"


def first_lines(report, limit=40):
    lines = [f"{f['name']} sample {f['sample']}: {f['problem']}" for f in report["failures"]]
    return "\n".join([f"{len(lines)} failures"] + lines[:limit])


def assert_nearly_everything_was_compared(report, draw):
    totals = report["totals"]
    assert totals["operators and modules of the table"] >= (600 if report["dtype"] == "float32" else 500)
    assert totals["samples of the table"] >= 13000
    assert totals["samples compared"] >= 0.99 * totals["samples"], totals
    if draw.everything:
        assert totals["samples"] == totals["samples of the table"]
        assert totals["double backwards compared"] >= 0.5 * totals["samples"]
    if not totals.get("samples not reached"):
        assert totals["operators and modules"] == totals["operators and modules of the table"], "some had no sample"


def assert_pleat_took_part(report, least):
    if STOCK_ONLY:
        return
    records = report["stats"]["records"]
    for name in ("tagged", "released", "encoded", "restored"):
        assert records.get(name, 0) >= least, report["stats"]


SWEEPS = {
    "lossy": {"check": "lossy", "conf": LOSSY},
    "lossless-float32": {"check": "lossless", "conf": LOSSLESS},
    "lossless-float64": {"check": "lossless", "conf": LOSSLESS, "dtype": "float64"},
}


def sweep_of_today(name, runner, tmp_path, draw, figures):
    report = sweep(runner, tmp_path, subject="pleat", draw=draw, **SWEEPS[name])
    figures.extend(in_words(name, report))
    assert not report["failures"], first_lines(report)
    assert_nearly_everything_was_compared(report, draw)
    assert_pleat_took_part(report, report["totals"]["samples"] // 2)
    return report


@pytest.mark.sweep
@pytest.mark.rotating
@pytest.mark.parametrize("name", ["lossless-float32", "lossless-float64"])
def test_lossless_gradients_of_every_operator_equal_stock_bit_for_bit(runner, tmp_path, draw, figures, name):
    sweep_of_today(name, runner, tmp_path, draw, figures)


@pytest.mark.sweep
@pytest.mark.rotating
def test_lossy_saved_tensors_of_every_operator_stay_within_their_bound(runner, tmp_path, draw, figures):
    report = sweep_of_today("lossy", runner, tmp_path, draw, figures)
    if not STOCK_ONLY:
        assert report["census"].get("saved tensors changed within bound", 0) >= report["totals"]["samples"] // 2
    if not STOCK_ONLY and draw.everything:
        # All operators with a save that can be lossy, each a few times. Other saves are exact even without the need of a
        # proof: poles, factors of linear algebra, sides, tensors read for their shape.
        assert report["totals"]["operators and modules with changed tensors"] >= 170


@pytest.mark.smoke
@pytest.mark.parametrize("check, conf", [("lossless", LOSSLESS), ("lossy", LOSSY)])
def test_a_few_operators_pass_on_every_torch(runner, tmp_path, check, conf):
    only = r"/(mul|matmul|softmax|log_softmax|linalg\.cholesky|nn\.functional\.(conv2d|rrelu|batch_norm)|nn\.(Linear|LSTM))$"
    report = sweep(runner, tmp_path, check=check, conf=conf, subject="pleat", only=only)
    assert not report["failures"], first_lines(report)
    assert report["totals"]["samples compared"] > 80
    assert_pleat_took_part(report, 100)


@pytest.mark.parametrize("check", ["lossless", "lossy"])
def test_the_sweep_finds_damaged_saved_tensors(runner, tmp_path, check):
    """Negative control: two-bit hooks in place of Pleat must be noticed in every operator."""
    only = r"/(mul|matmul|softmax|linalg\.cholesky|nn\.Conv2d|nn\.Linear)$"
    report = sweep(runner, tmp_path, check=check, conf="", subject="damage", only=only)
    assert {f["name"].split("/")[1] for f in report["failures"]} >= {
        "mul", "matmul", "softmax", "linalg.cholesky", "nn.Conv2d", "nn.Linear"
    }  # fmt: skip


@pytest.mark.skipif(os.environ.get("PLEAT_TEST_SWEEP_SELF") != "1", reason="set PLEAT_TEST_SWEEP_SELF=1")
@pytest.mark.sweep
@pytest.mark.parametrize("check", ["lossless", "lossy"])
def test_stock_against_stock_has_no_failure(runner, tmp_path, check):
    report = sweep(runner, tmp_path, check=check, conf="", subject="stock")
    assert not report["failures"], first_lines(report)
