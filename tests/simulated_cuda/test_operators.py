"""PyTorch's operator and module tables with device "cuda", without loss: what passes with stock passes."""

import json
import pathlib
import re

import pytest

from codings import LOSSLESS

pytest_plugins = ("simulated",)

SWEEP = pathlib.Path(__file__).resolve().parents[1] / "operators" / "sweep.py"
# The simulation ends the process: these call libraries of which it has none (solvers, sparse matrices), or look at memory in
# kernels that are no operators.
ENDS = (
    "cholesky", "linalg.det", "linalg.eig", "linalg.eigh", "linalg.eigvals", "linalg.eigvalsh", "linalg.householder_product",
    "linalg.lstsq", "linalg.lstsq.grad_oriented", "linalg.lu", "linalg.slogdet", "logdet", "mode", "ormqr", "sparse.sampled_addmm",
    "svd", "to_sparse",
)  # fmt: skip
LACKING = "op_db/(" + "|".join(map(re.escape, ENDS)) + ")"


def sweep(run, tmp_path, subject, only, draw, **options):
    """The report and the outcome. run: as `simulate` or `under_pleat`."""
    report, progress = tmp_path / f"{subject}.json", tmp_path / "progress"
    words = ["--device=cuda", f"--subject={subject}", f"--only={only}", f"--json={report}", f"--progress={progress}"]
    if draw is not None:
        words += [f"--draw={draw.text}", *([f"--until={draw.until}"] if draw.until else [])]
    outcome = run(SWEEP, *words, timeout=1200, **options)
    under_way = progress.read_text().strip() if progress.exists() else "start"
    assert report.exists(), f"died (exit {outcome.code}) at {under_way}\n{outcome.stderr[-4000:]}"
    return json.loads(report.read_text()), outcome


def assert_as_stock(report, simulate, tmp_path):
    """What fails in stock against stock too the simulation does not do twice in the same way."""
    names = sorted({failure["name"] for failure in report["failures"]})
    if not names:
        return
    stock, _ = sweep(simulate, tmp_path, "stock", "^(" + "|".join(map(re.escape, names)) + ")$", None)
    excused = {failure["name"] for failure in stock["failures"]} | set(stock["dropped"])
    assert [failure for failure in report["failures"] if failure["name"] not in excused] == []


@pytest.mark.sweep
@pytest.mark.rotating
def test_lossless_gradients_of_every_operator_equal_stock_on_a_device(under_pleat, simulate, tmp_path, draw):
    report, outcome = sweep(under_pleat, tmp_path, "pleat", f"^(?!{LACKING}$)", draw, conf=LOSSLESS)
    assert_as_stock(report, simulate, tmp_path)
    totals = report["totals"]
    if "samples" not in totals:
        pytest.skip("no sample was reached")
    assert totals["samples compared"] >= 0.8 * totals["samples"], totals
    records = report["stats"]["devices"][0]["records"]
    for name in ("tagged", "released", "encoded", "restored"):
        assert records[name] > 0, records
    assert outcome.reports == []


@pytest.mark.smoke
def test_a_few_operators_equal_stock_on_a_device(under_pleat, simulate, tmp_path):
    only = r"/(mul|matmul|softmax|log_softmax|nn\.functional\.(conv2d|rrelu|batch_norm|dropout)|nn\.Linear)$"
    report, outcome = sweep(under_pleat, tmp_path, "pleat", only, None, conf=LOSSLESS)
    assert_as_stock(report, simulate, tmp_path)
    assert report["totals"]["samples compared"] > 60
    assert outcome.reports == []
