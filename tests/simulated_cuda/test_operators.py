"""PyTorch's operator and module tables with device "cuda", without loss: cases that pass with stock pass."""

import pathlib
import re
import sys

import pytest

from codings import LOSSLESS
from device_runner import DeviceRunner

pytest_plugins = ("simulated",)

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "operators"))

from test_sweep import first_lines, sweep  # noqa: E402

# These end the process: they call libraries that the simulation lacks (solvers, sparse matrices),
# or read memory in kernels outside of operators.
ENDS = (
    "cholesky", "linalg.det", "linalg.eig", "linalg.eigh", "linalg.eigvals", "linalg.eigvalsh", "linalg.householder_product",
    "linalg.lstsq", "linalg.lstsq.grad_oriented", "linalg.lu", "linalg.slogdet", "logdet", "mode", "ormqr", "sparse.sampled_addmm",
    "svd", "to_sparse",
)  # fmt: skip
LACKING = "op_db/(" + "|".join(map(re.escape, ENDS)) + ")"


@pytest.fixture(scope="module")
def runner(simulate, under_pleat, tmp_path_factory):
    return DeviceRunner(simulate, under_pleat, tmp_path_factory.mktemp("scripts"))


@pytest.fixture
def sweep_as_stock(runner, tmp_path):
    """The report of a sweep, without failures that a run of stock against stock has as well: the simulation is not
    fully deterministic."""

    def run(**options):
        report = sweep(runner, tmp_path, check="lossless", conf=LOSSLESS, subject="pleat", device="cuda", **options)
        if names := sorted({failure["name"] for failure in report["failures"]}):
            only = "^(" + "|".join(map(re.escape, names)) + ")$"
            stock = sweep(runner, tmp_path, check="lossless", conf="", subject="stock", device="cuda", only=only)
            excused = {failure["name"] for failure in stock["failures"]} | set(stock["dropped"])
            assert not [failure for failure in report["failures"] if failure["name"] not in excused], first_lines(report)
        return report

    return run


@pytest.mark.sweep
@pytest.mark.rotating
def test_lossless_gradients_of_every_operator_equal_stock_on_a_device(sweep_as_stock, draw):
    report = sweep_as_stock(only=f"^(?!{LACKING}$)", draw=draw)
    totals = report["totals"]
    if "samples" not in totals:
        pytest.skip("no sample was reached")
    assert totals["samples compared"] >= 0.8 * totals["samples"], totals
    records = report["stats"]["devices"][0]["records"]
    for name in ("tagged", "released", "encoded", "restored"):
        assert records[name] > 0, records


@pytest.mark.smoke
def test_a_few_operators_equal_stock_on_a_device(sweep_as_stock):
    only = r"/(mul|matmul|softmax|log_softmax|nn\.functional\.(conv2d|rrelu|batch_norm|dropout)|nn\.Linear)$"
    assert sweep_as_stock(only=only)["totals"]["samples compared"] > 60
