"""PyTorch's operator and module tables as a gate: every sample forward, backward, double backward."""

import collections
import concurrent.futures
import json
import os
import pathlib

import pytest

from conftest import LOSSLESS, STOCK_ONLY

LOSSY = "bits:4,min_bytes:0,copy_raw:1"  # copy_raw: the table's tiny tensors are quantised as well

SWEEP = pathlib.Path(__file__).with_name("sweep.py")


def sweep(runner, tmp_path, *, check, conf, subject, dtype="float32", only="", timeout=2400):
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
            f"--only={only}",
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
    yield (f"operator table, {name}: {totals['operators and modules']} operators and modules, "
           f"{totals['samples']} samples, {totals['samples compared']} compared "
           f"({totals['double backwards compared']} twice backward), "
           f"{report['stats']['records']['encoded'] if report.get('stats') else 0} payloads, "
           f"{totals.get('operators and modules with changed tensors', 'no')} operators with changed tensors, "
           f"{len(report['failures'])} failures, {dropped} findings dropped as stock does not repeat itself, "
           f"{report['seconds']:.0f} s")  # fmt: skip
    for operator, count in sorted(excluded.items()):
        yield f"  excluded: {operator}, {count} findings (tests/operators/exclusions.py says why)"


def first_lines(report, limit=40):
    lines = [f"{f['name']} sample {f['sample']}: {f['problem']}" for f in report["failures"]]
    return "\n".join([f"{len(lines)} failures"] + lines[:limit])


def assert_nearly_everything_was_compared(report):
    totals = report["totals"]
    if report["dtype"] == "float32":
        assert totals["operators and modules"] >= 600
        assert totals["samples"] >= 13000
        assert totals["double backwards compared"] >= 8000
    assert totals["samples compared"] >= 0.99 * totals["samples"], totals


def assert_pleat_took_part(report, least):
    if STOCK_ONLY:
        return
    records = report["stats"]["records"]
    for name in ("tagged", "released", "encoded", "restored"):
        assert records.get(name, 0) >= least, report["stats"]


FULL_SWEEPS = {
    "lossy": {"check": "lossy", "conf": LOSSY},
    "lossless-float32": {"check": "lossless", "conf": LOSSLESS},
    "lossless-float64": {"check": "lossless", "conf": LOSSLESS, "dtype": "float64"},
}


@pytest.fixture(scope="module")
def full_sweeps(request, runner, tmp_path_factory, preload_library):
    """The sweeps the session asks for, one core each, all at once; name -> future of the report."""
    wanted = {item.callspec.params["name"] for item in request.session.items
              if "full_sweeps" in item.fixturenames}  # fmt: skip
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        yield {
            name: pool.submit(sweep, runner, tmp_path_factory.mktemp(name), subject="pleat", **how)
            for name, how in FULL_SWEEPS.items()
            if name in wanted
        }


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["lossless-float32", "lossless-float64"])
def test_lossless_gradients_of_every_operator_equal_stock_bit_for_bit(full_sweeps, figures, name):
    report = full_sweeps[name].result()
    figures.extend(in_words(name, report))
    assert not report["failures"], first_lines(report)
    assert_nearly_everything_was_compared(report)
    assert_pleat_took_part(report, 10000)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["lossy"])
def test_lossy_saved_tensors_of_every_operator_stay_within_their_bound(full_sweeps, figures, name):
    report = full_sweeps[name].result()
    figures.extend(in_words(name, report))
    assert not report["failures"], first_lines(report)
    assert_nearly_everything_was_compared(report)
    assert_pleat_took_part(report, 10000)
    if not STOCK_ONLY:
        assert report["census"].get("saved tensors changed within bound", 0) >= 10000
        # Not a few operators many times: all that save something which may be lossy.
        assert report["totals"]["operators and modules with changed tensors"] >= 250


@pytest.mark.smoke
@pytest.mark.parametrize("check, conf", [("lossless", LOSSLESS), ("lossy", LOSSY)])
def test_a_few_operators_hold_on_every_torch(runner, tmp_path, check, conf):
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
