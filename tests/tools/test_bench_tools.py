"""The benchmark programs start, refuse bad input in one line, and print their tables; no training."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "tools" / "bench"
sys.path.insert(0, str(BENCH))

import accuracy  # noqa: E402
import exactness  # noqa: E402
import harness  # noqa: E402
import max_batch  # noqa: E402
import peak  # noqa: E402
from accuracy_parts import figures as accuracy_figures  # noqa: E402
from models import MODELS  # noqa: E402

PROGRAMS = sorted(path.name for path in BENCH.glob("*.py") if "argparse" in path.read_text())
NEEDS_TORCH_TO_START = {"gpu_gradients.py"}

COUNTERS = {
    "records": {"source_bytes": 8_000_000_000, "payload_bytes": 1_000_000_000, "encoded": 400, "backward_passes": 4},
    "time": {"encode_ns": 100_000_000, "decode_ns": 100_000_000, "hook_ns_sampled": 4000, "hook_samples": 10},
}


def run(peak_bytes=1100, step=1.0, **more):
    """A result of train.py."""
    return {
        "base_bytes": 100_000_000, "peak_bytes": peak_bytes * 1_000_000, "median_step_seconds": step, "step_seconds": [step] * 4,
        "step_cpu_seconds": [9.0, 2.0, 2.0, 2.0], "minor_faults": 4000, "steps": 4, "losses": [5.0, 3.0], "batch": 8,
        "unit": "images", "pleat": None,
    } | more  # fmt: skip


# --- programs ---


def start(program, *arguments):
    command = [sys.executable, "-X", "importtime", BENCH / program, *arguments]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    lines = done.stderr.splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    return done, imported, [line for line in lines if not line.startswith("import time:")]


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_describes_the_program_and_imports_no_torch(program):
    done, imported, printed = start(program, "--help")
    assert done.returncode == 0 and printed == [] and len(done.stdout.splitlines()) > 10
    assert "torch" not in imported or program in NEEDS_TORCH_TO_START


@pytest.mark.parametrize(
    ("program", "arguments", "words"),
    [
        ("peak.py", ["--model", "resnet51"], "no model named"),
        ("peak.py", ["--model", "bert", "--bits", "9"], "--bits"),
        ("peak.py", ["--model", "bert", "--steps", "1"], "--steps"),
        ("peak.py", ["--model", "bert", "--lib", "nowhere.so"], "no such file"),
        ("peak.py", ["--model", "bert", "--json", "/nonexistent-folder/x.json"], "cannot write"),
        ("max_batch.py", ["--cap", "lots"], "no size"),
        ("max_batch.py", ["--cap", "500TB"], "80 %"),
        ("steps.py", ["--checks", "magic"], "no check named"),
        ("accuracy.py", ["--tasks", "magic"], "no task named"),
        ("accuracy.py", ["--tasks", ","], "--tasks names none"),
        ("accuracy.py", ["--seeds", "1"], "--seeds must be at least 2"),
        ("accuracy.py", ["--quick", "--jobs", "0"], "--jobs and --threads must be at least 1"),
        ("accuracy.py", ["--lib", "/no/such/lib.so"], "no such file"),
        ("overhead.py", ["--model", "x"], "no model named"),
        ("planted.py", ["--model", "x"], "no model named"),
        ("planted.py", ["--steps", "1"], "--steps must be at least 2"),
        ("zoo.py", ["--model", "x"], "no model named"),
        ("sensitivity_cost.py", ["--rows", "magic"], "--rows: no row named"),
        ("sensitivity_cost.py", ["--rows", ","], "--rows: no row is named"),
        ("sensitivity_cost.py", ["--model", "resnet51"], "--model: no model named"),
        ("sensitivity_cost.py", ["--batch", "0"], "at least 1"),
        ("sensitivity_cost.py", ["--pairs", "0"], "at least 1"),
        ("sensitivity_cost.py", ["--lib", "nowhere.so"], "no such file"),
        ("sensitivity_cost.py", ["--keep", "/nonexistent-folder"], "no such folder"),
        ("sensitivity_cost.py", ["--keep", "/"], "not empty"),
        ("sensitivity_cost.py", ["--json", "/nonexistent-folder/x.json"], "cannot write"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(program, arguments, words):
    done, _, printed = start(program, *arguments)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert words in printed[-1], printed


# --- tables ---


def test_the_peak_report_has_a_line_per_row():
    text = peak.report("bert", {"stock": [run()], "pleat bits:4": [run(300, 0.9, pleat=COUNTERS)]})
    assert "5.00x" in text and "-10.0" in text and "8.00x" in text
    assert len(text.splitlines()) == 6


def test_the_batch_report_shows_a_row_that_found_no_batch():
    found = [
        {"row": "stock", "batch": 0, "peak_bytes": None, "samples_per_second": 0.0, "tries": [1]},
        {"row": "pleat", "batch": 3, "peak_bytes": 9e8, "samples_per_second": 1.5, "tries": [1]},
    ]
    text = max_batch.report("bert", 10**9, found)
    assert "none" in text and "1.5" in text


def test_a_line_of_requested_peaks_compares_with_stock_before_and_by_hand():
    def row(peak, **more):
        return {"requested_peak": peak, "exact_bytes": {}} | more

    rows = {"stock": row(400_000_000), "before": row(80_000_000), "by_hand": row(125_000_000),
            "pleat": row(100_000_000, exact_bytes={"may_bear_noise": 750, "pole": 200, "in_backward": 50})}  # fmt: skip
    name, stock, pleat, ratio, after, by_hand, exact, unproven, reasons = exactness.line("bert", {"rows": rows})
    assert (stock, pleat, ratio, after, by_hand) == ("400.0", "100.0", "4.00", "1.250", "0.80")
    assert (exact, unproven, reasons) == ("25.0", "20.0", "pole 20.0, in_backward 5.0")


def test_the_accuracy_report_has_a_line_per_side():
    counters = {"enabled": 1, "codec": {name: dict.fromkeys(("source_bytes", "payload_bytes", "elements"), 0) for name in accuracy_figures.CLASSES},
                "records": {"recomputed_bytes": 0}}  # fmt: skip
    counters["codec"]["lossy_fp32"] |= {"source_bytes": 9500}

    def trained(seed, pleat=None):
        return {"seed": seed, "accuracy": 98.0, "test_loss": 0.1, "steps": 10, "parameters": 650, "said": [], "pleat": pleat,
                "saved": {"bytes": 1000, "masks": 0}}  # fmt: skip

    by_side = {"stock": [trained(0), trained(1)], "bits 4": [trained(0, counters), trained(1, counters)]}
    row = accuracy_figures.row_of("digits", "bits 4", *by_side.values(), adaptive=False, has_bar=True)
    text = accuracy.report("digits", by_side, [row], None)
    assert row.verdict == "holds" and "bits 4" in text and "holds" in text and "98.00" in text


def test_tables_line_up():
    lines = harness.table(["row", "n"], [["a", "1"], ["long name", "1000"]]).splitlines()
    assert lines[2] == "a             1" and lines[3] == "long name  1000"


# --- what the programs name ---


def test_every_reason_for_want_of_a_proof_is_one_of_the_bridges():
    names = (ROOT / "torch_bridge" / "core" / "reasons.h").read_text().partition("PLEAT_EXACTNESS(ROW)")[2]
    assert all(f'"{why}"' in names for why in (*exactness.UNPROVEN, exactness.BORNE))


def test_the_catalogue_and_the_modules_agree():
    files = {path.stem for path in (BENCH / "models").glob("*.py")} - {"__init__", "parts"}
    assert files == set(MODELS)


def test_the_training_script_does_not_know_pleat():
    for path in [BENCH / "train.py", *(BENCH / "models").glob("*.py"), ROOT / "tools" / "demo" / "train_chargpt.py"]:
        assert "import pleat" not in path.read_text()


def test_result_files_are_small_and_have_no_path_of_a_machine():
    files = list((BENCH / "results").iterdir())
    assert files and sum(path.stat().st_size for path in files) <= 250_000
    for path in files:
        assert path.suffix == ".json" and not re.search(r'[:" ]/\w', path.read_text()), path
