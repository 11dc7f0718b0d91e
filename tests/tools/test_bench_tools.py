"""The arithmetic, parsing and tables of the benchmark programs; no training."""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "tools" / "bench"
sys.path.insert(0, str(BENCH))

import exactness  # noqa: E402
import harness  # noqa: E402
import max_batch  # noqa: E402
import overhead  # noqa: E402
import peak  # noqa: E402
import pleat_counters  # noqa: E402
import steps  # noqa: E402
from models import MODELS  # noqa: E402


def run(base=100, peak_bytes=1100, step=1.0, cpu=2.0, loss=3.0, **more):
    return {
        "base_bytes": base * 1_000_000,
        "peak_bytes": peak_bytes * 1_000_000,
        "median_step_seconds": step,
        "step_seconds": [step] * 4,
        "step_cpu_seconds": [9.0, cpu, cpu, cpu],
        "minor_faults": 4000,
        "steps": 4,
        "losses": [5.0, loss],
        "batch": 8,
        "unit": "images",
        "pleat": None,
    } | more


# --- overhead ---


def test_the_cost_of_a_saved_tensor_is_weighted_by_what_a_step_saves():
    pleat = {"records": {"backward_passes": 2, "live_at_unpack": 4},
             "eligibility": {"eligible_lossy": {"tensors": 12}, "eligible_lossless": {"tensors": 8},
                             "view_of_leaf": {"tensors": 4}, "leaf": {"tensors": 2}, "too_small": {"tensors": 6}}}
    saved = overhead.saved_tensors(run(pleat=pleat))
    assert saved == {"saved live": 2, "saved gone": 8, "saved leaf": 3, "saved small": 3}
    stock = {"saved live": 60, "saved gone": 70, "saved leaf": 50, "saved small": 60}
    off = {"saved live": 360, "saved gone": 770, "saved leaf": 100, "saved small": 90}
    micros = {overhead.STOCK.name: [stock], overhead.OFF.name: [off]}
    assert overhead.mean_saved_ns(micros, saved) == pytest.approx((2 * 300 + 8 * 700 + 3 * 50 + 3 * 30) / 16)


# --- paired figures ---


def test_peak_ratio_takes_stocks_base_on_both_sides():
    result = harness.paired([run(base=100, peak_bytes=1100)], [run(base=300, peak_bytes=350)])
    assert result.peak_ratio == pytest.approx(1000 / 250)
    assert result.peak_bytes == 250e6


def test_figures_are_medians_over_pairs_not_ratios_of_medians():
    stock = [run(step=1.0), run(step=2.0), run(step=4.0)]
    row = [run(step=1.1), run(step=2.4), run(step=4.0)]
    result = harness.paired(stock, row)
    assert result.step_loss_percent == pytest.approx(10.0)
    assert result.step_loss_spread == pytest.approx(20.0)
    assert result.peak_ratio_spread == 0


def test_processor_time_leaves_out_the_first_step():
    assert harness.paired([run(cpu=2.0)], [run(cpu=3.0)]).step_cpu_loss_percent == pytest.approx(50.0)


def test_unequal_numbers_of_runs_are_refused():
    with pytest.raises(ValueError):
        harness.paired([run()], [])


def test_a_row_that_never_rises_above_the_base_divides_by_no_zero():
    assert harness.paired([run()], [run(peak_bytes=50)]).peak_ratio > 1


def test_slope_of_a_line_is_its_slope():
    assert harness.slope([(x, 7 * x - 3) for x in range(20, 200, 20)]) == pytest.approx(7)
    assert harness.slope([(1, 5)]) == 0
    assert harness.slope([(1, 5), (1, 9)]) == 0


# --- parsing ---


@pytest.mark.parametrize(
    ("text", "count"),
    [("4GiB", 4 << 30), ("4G", 4 << 30), ("800MB", 800_000_000), ("1.5 kib", 1536), ("12345", 12345), ("2 tb", 2 * 10**12)],
)
def test_sizes_are_read(text, count):
    assert harness.parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "3furlongs", "-1GiB", "0", "nan", "inf", "1e30", "4GiBB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(harness.Problem):
        harness.parse_bytes(text)


def test_rows_start_with_stock_and_know_the_bits():
    rows = harness.parse_rows("pleat,checkpoint,stock,pleat", "3")
    assert [row.name for row in rows] == ["stock", "pleat bits:3", "checkpoint"]
    assert rows[1].conf == "bits:3" and rows[2].checkpoint and rows[2].conf is None


def test_a_row_may_be_any_configuration():
    assert harness.parse_rows("conf=bits:2;place:inplace", "4")[1].conf == "bits:2,place:inplace"


def test_unknown_row_names_what_there_is():
    with pytest.raises(harness.Problem, match="checkpoint"):
        harness.parse_rows("stok", "4")


@pytest.mark.parametrize("bits", ["off", "lossless", "1", "8", "3.5"])
def test_bits_are_accepted(bits):
    assert harness.check_bits(bits) == bits


@pytest.mark.parametrize("bits", ["0", "9", "", "four", "nan"])
def test_bits_are_refused(bits):
    with pytest.raises(harness.Problem):
        harness.check_bits(bits)


def test_rows_without_a_library_are_left_out(capsys):
    rows = harness.parse_rows("pleat,checkpoint", "4")
    assert [row.name for row in harness.runnable_rows(rows, None)] == ["stock", "checkpoint"]
    assert "left out" in capsys.readouterr().err


def test_every_second_repeat_goes_backwards():
    assert [harness.in_turn([1, 2, 3], repeat) for repeat in range(3)] == [[1, 2, 3], [3, 2, 1], [1, 2, 3]]


def test_stock_rows_run_without_any_preload(monkeypatch, tmp_path):
    library = tmp_path / "libpleat.so"
    monkeypatch.setenv("LD_PRELOAD", f"{library}:libother.so")
    monkeypatch.setenv("PLEAT_CONF", "bits:1")
    stock = harness.environment(harness.Row("stock"), library, 2)
    assert "LD_PRELOAD" not in stock and "PLEAT_CONF" not in stock
    pleat = harness.environment(harness.Row("pleat", "bits:4"), library, 2)
    assert pleat["LD_PRELOAD"] == f"{library}:libother.so" and pleat["PLEAT_CONF"] == "bits:4"


def test_status_fields_are_bytes():
    text = "Name:\tpython\nVmHWM:\t  2048 kB\nVmRSS:\t 1024 kB\n"
    assert harness.field_bytes(text, "VmHWM") == 2048 * 1024
    assert harness.field_bytes(text, "VmSwap") == 0


# --- largest batch ---


@pytest.mark.parametrize(("base", "each", "start"), list(itertools.product([0, 300, 999], [1, 7, 130], [1, 16, 500])))
def test_the_largest_batch_is_found_exactly(base, each, start):
    cap, tried = 1000, []

    def peak_of(batch):
        tried.append(batch)
        size = base + each * batch
        return size if size <= cap else None

    assert max_batch.largest_batch(peak_of, cap, start) == (cap - base) // each
    assert len(tried) == len(set(tried)), "a batch was tried twice"
    assert len(tried) <= 16


def test_a_bent_curve_and_jumps_still_end_at_the_edge():
    def peak_of(batch):
        return batch * batch // 50 + 64 * (batch // 32)

    best = max_batch.largest_batch(peak_of, 4000, 8)
    assert peak_of(best) <= 4000 < peak_of(best + 1)


def test_tolerance_saves_tries():
    def tries(tolerance):
        count = itertools.count()
        last = max_batch.largest_batch(lambda b: (next(count), 100 + 3 * b + b % 7)[1], 10_000, 16, tolerance)
        return last, next(count)

    exact, many = tries(0.0)
    near, few = tries(0.02)
    assert exact * 0.98 <= near <= exact and few <= many


def test_nothing_fits_is_zero():
    assert max_batch.largest_batch(lambda batch: None, 1, 16) == 0


# --- long runs ---


def test_flat_memory_with_jitter_passes_and_growth_fails():
    flat = [[step, 1_000_000_000 + (step * 7919 % 5) * 100_000] for step in range(20, 1001, 20)]
    growing = [[step, 1_000_000_000 + step * 50_000] for step in range(20, 1001, 20)]
    assert steps.memory_growth(flat)["ok"]
    result = steps.memory_growth(growing)
    assert not result["ok"] and result["bytes_per_step"] == pytest.approx(50_000)


def test_growth_before_the_settled_step_does_not_count():
    samples = [[10, 1]] + [[step, 10**9] for step in range(20, 201, 20)]
    assert steps.memory_growth(samples)["bytes_per_step"] == 0


def test_runs_are_the_same_only_if_losses_and_weights_are():
    one = {"losses": [1.0, 2.0, 3.0], "weights_sha256": "a"}
    assert steps.same(one, dict(one)) == (True, None)
    assert steps.same(one, one | {"losses": [1.0, 2.5, 3.0]}) == (False, 2)
    assert steps.same(one, one | {"weights_sha256": "b"}) == (False, None)
    assert steps.same(one, one | {"losses": [1.0, float("nan"), 3.0]})[0] is False


def test_loss_verdict_allows_one_percent_or_twice_the_standard_error_of_the_pairs():
    # Differences 0.1 and 0.3: mean 0.2, standard deviation sqrt(0.02), standard error 0.1.
    v = steps.loss_verdict([2.0, 2.0], [2.1, 2.3])
    assert v["difference"] == pytest.approx(0.2) and v["standard_error"] == pytest.approx(0.1)
    assert steps.loss_verdict([2.0, 2.0], [2.1, 2.31])["ok"]  # 0.205, twice 0.105
    assert not steps.loss_verdict([2.0, 2.0], [2.1, 2.29])["ok"]  # 0.195, twice 0.095
    assert steps.loss_verdict([2.0, 3.0], [2.02, 3.02])["ok"]  # 0.8 % of 2.5, without any spread
    # Seeds that differ much among themselves excuse nothing: what counts is the pairs.
    assert not steps.loss_verdict([2.0, 3.0], [2.03, 3.03])["ok"]
    assert not steps.loss_verdict([2.0, 3.0], [1.97, 2.97])["ok"]
    assert not steps.loss_verdict([2.0, 2.0, 2.0], [float("nan")] * 3)["ok"]
    assert not steps.loss_verdict([2.0, 2.0], [2.0, float("inf")])["ok"]


# --- what is exact ---


def test_exact_bytes_for_want_of_a_proof_are_those_that_a_rule_could_have_spared():
    counted = {
        "may_bear_noise": {"storages": 9, "bytes": 900}, "no_proof": {"storages": 1, "bytes": 60},
        "pole": {"storages": 1, "bytes": 20}, "computed_weight": {"storages": 1, "bytes": 20}, "poles_after_proof": 3,
    }  # fmt: skip
    by_reason = exactness.exact_bytes(run(pleat={"exact": counted}))
    assert by_reason == {"may_bear_noise": 900, "no_proof": 60, "pole": 20, "computed_weight": 20}
    assert exactness.unproven_share(by_reason) == pytest.approx(0.08)
    assert exactness.unproven_share(exactness.exact_bytes(run(pleat={"records": {}}))) is None


def test_every_reason_for_want_of_a_proof_is_one_of_the_bridges():
    names = (ROOT / "torch_bridge" / "core" / "reasons.h").read_text().partition("exactness_name(")[2]
    assert all(f'"{why}"' in names for why in (*exactness.UNPROVEN, exactness.BORNE))


def test_a_line_of_requested_peaks_compares_with_stock_before_and_by_hand():
    def row(peak, **more):
        return {"requested_peak": peak, "exact_bytes": {}} | more

    rows = {"stock": row(400_000_000), "before": row(80_000_000), "by_hand": row(125_000_000),
            "pleat": row(100_000_000, exact_bytes={"may_bear_noise": 750, "pole": 200, "in_backward": 50})}  # fmt: skip
    name, stock, pleat, ratio, after, by_hand, exact, unproven, reasons = exactness.line("bert", {"rows": rows})
    assert (stock, pleat, ratio, after, by_hand) == ("400.0", "100.0", "4.00", "1.250", "0.80")
    assert (exact, unproven, reasons) == ("25.0", "20.0", "pole 20.0, in_backward 5.0")


def test_a_row_by_hand_has_the_libraries_folder_in_place_of_the_preload_library(tmp_path, monkeypatch):
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    row = harness.parse_rows("by_hand", "4")[1]
    env = harness.environment(row, tmp_path / "lib" / "libpleat.so", 2)
    assert row.by_hand and env["PLEAT_CONF"] == "bits:4" and env["PLEAT_LIB_DIR"] == str(tmp_path / "lib")
    assert "LD_PRELOAD" not in env


# --- Pleat's counters ---

COUNTERS = {
    "records": {"source_bytes": 8_000_000_000, "payload_bytes": 1_000_000_000, "encoded": 400, "backward_passes": 4},
    "time": {"encode_ns": 100_000_000, "decode_ns": 100_000_000, "hook_ns_sampled": 4000, "hook_samples": 10},
}


def test_counters_become_one_line():
    words = pleat_counters.summary(run(pleat=COUNTERS))
    assert "2000 MB -> 250 MB (8.00x)" in words
    assert "100 tensors a step" in words and "400 ns" in words and "codec 5.0 %" in words


@pytest.mark.parametrize("counters", [None, {}, {"records": 3}, {"time": {"encode_ns": "x"}}, {"records": {"source_bytes": 5, "payload_bytes": 0}}])
def test_missing_counters_are_left_out(counters):
    assert pleat_counters.summary(run(pleat=counters)) == ""


# --- reports and programs ---


def test_the_peak_report_has_a_line_per_row():
    text = peak.report("bert", {"stock": [run()], "pleat bits:4": [run(peak_bytes=300, step=0.9, pleat=COUNTERS)]})
    assert "5.00x" in text and "-10.0" in text and "8.00x" in text
    assert len(text.splitlines()) == 6


def test_the_batch_report_shows_what_found_nothing():
    found = [
        {"row": "stock", "batch": 0, "peak_bytes": None, "samples_per_second": 0.0, "tries": [1]},
        {"row": "pleat", "batch": 3, "peak_bytes": 9e8, "samples_per_second": 1.5, "tries": [1]},
    ]
    text = max_batch.report("bert", 10**9, found)
    assert "none" in text and "1.5" in text


def test_the_papers_greedy_gives_two_bits_before_another_gets_four_where_it_matters_little_enough():
    from sensitivity_parts import paper

    # From 8 to 4 bits the noise grows by 1.107e-3 of c a bit and element, from 4 to 2 by 0.0533: 48 times as much.
    assert paper.assigned(paper.Sensitivities([1.0, 1 / 47], [100, 100]), 5) == [4, 4]
    assert paper.assigned(paper.Sensitivities([1.0, 1 / 49], [100, 100]), 5) == [8, 2]
    assert paper.assigned(paper.Sensitivities([1.0, 1.0], [10, 10]), 6) == [8, 4]  # of equals the last one goes first
    assert paper.assigned(paper.Sensitivities([3.0, 1.0], [10, 20]), 32) == [32, 32]
    assert paper.assigned(paper.Sensitivities([3.0, 1.0], [10, 20]), 1) == [1, 1]


def test_a_tensor_that_the_gradient_is_linear_in_has_the_sensitivity_of_its_rounding():
    import torch

    from sensitivity_parts import paper

    weights = torch.randn(300, 40, generator=torch.Generator().manual_seed(1), requires_grad=True)
    x = torch.randn(2000, 300, generator=torch.Generator().manual_seed(2)).requires_grad_()

    def gradient():
        weights.grad = None
        (x * 1.0 @ weights).sum().backward()  # its gradient is the sum over the rows of what is saved, 40 times
        return weights.grad.flatten()

    found = paper.sensitivities(gradient, 4, seed=3)
    assert found.elements == [600_000]
    random = torch.Generator().manual_seed(4)
    saved = x.detach().flatten()
    error = (paper.rounded(saved, 4, random) - saved).view(2000, 300).sum(0)
    assert found.values[0] * paper.shape(4) == pytest.approx(40 * float(error.square().sum()), rel=0.3)


def test_tables_line_up():
    lines = harness.table(["row", "n"], [["a", "1"], ["long name", "1000"]]).splitlines()
    assert lines[2] == "a             1" and lines[3] == "long name  1000"


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
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(program, arguments, words):
    done = subprocess.run([sys.executable, str(BENCH / program), *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("program", ["peak.py", "max_batch.py", "steps.py", "overhead.py", "accuracy.py"])
def test_help_shows_examples_and_imports_no_torch(program):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", str(BENCH / program), "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0 and "example" in done.stdout
    assert not any(line.rstrip().endswith("| torch") for line in done.stderr.splitlines())


def stand_in(tmp_path, monkeypatch, body):
    """Puts a program in train.py's place."""
    (tmp_path / "train.py").write_text("import json, os, sys, time\nout = sys.argv[sys.argv.index('--out') + 1]\n" + textwrap.dedent(body))
    monkeypatch.setattr(harness, "BENCH", tmp_path)


def test_a_run_past_the_cap_is_stopped_early(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, "hold = bytearray(b'x' * 300_000_000)\ntime.sleep(60)\n")
    with pytest.raises(harness.OverCap):
        harness.train(harness.Row("stock"), [], None, cap_bytes=150_000_000)


def test_a_failed_run_says_how_it_ended(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, "sys.exit('out of luck')\n")
    with pytest.raises(harness.Problem, match="out of luck"):
        harness.train(harness.Row("stock"), [], None)


def test_a_run_returns_what_it_wrote(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, f"json.dump({json.dumps(run()).replace('null', 'None')}, open(out, 'w'))\n")
    result = harness.train(harness.Row("stock"), [], None)
    assert result["row"] == "stock" and result["peak_bytes"] == 1_100_000_000


STEPS_WITH_PAUSES = """
import signal
row = "off" if "PLEAT_CONF" in os.environ else "stock"
assert "--pause" in sys.argv
noted = open(os.path.join(os.path.dirname(__file__), "order"), "a", buffering=1)
for step in range(3):
    os.kill(os.getpid(), signal.SIGSTOP)
    noted.write(f"{row} {step} begins\\n")
    time.sleep(0.02)
    noted.write(f"{row} {step} ends\\n")
"""


def test_side_by_side_one_process_moves_at_a_time_and_the_order_turns(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, STEPS_WITH_PAUSES + f"json.dump({json.dumps(run()).replace('null', 'None')} | {{'was': row}}, open(out, 'w'))\n")
    rows = [harness.Row("stock"), harness.Row("off", "bits:off")]
    library = tmp_path / "libpleat.so"
    results = harness.train_side_by_side(rows, [], library)
    assert [(r["row"], r["was"]) for r in results] == [("stock", "stock"), ("off", "off")]
    order = ["stock 0", "off 0", "off 1", "stock 1", "stock 2", "off 2"]
    noted = (tmp_path / "order").read_text().splitlines()
    assert noted == [f"{step} {what}" for step in order for what in ("begins", "ends")]


def test_side_by_side_a_process_that_paused_before_it_was_waited_for_has_not_moved(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, STEPS_WITH_PAUSES)
    with harness.Training(harness.Row("stock"), ["--pause"], None, 1) as training:
        while pathlib.Path(f"/proc/{training.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        assert training.run_to_pause()
        assert (tmp_path / "order").read_text() == ""
        assert training.run_to_pause()
        assert (tmp_path / "order").read_text() == "stock 0 begins\nstock 0 ends\n"


@pytest.mark.parametrize("before", ["if row == 'off': sys.exit('out of luck')\n", ""])
def test_side_by_side_a_failure_ends_the_others(tmp_path, monkeypatch, before):
    body = STEPS_WITH_PAUSES.replace("assert", before + "assert") + "sys.exit('out of luck') if row == 'off' else time.sleep(60)\n"
    stand_in(tmp_path, monkeypatch, "open(os.path.join(os.path.dirname(__file__), str(os.getpid()) + '.pid'), 'w')\n" + body)
    with pytest.raises(harness.Problem, match="'off' failed .*out of luck"):
        # the first of each turn that ends is the one that is waited for: off, in turn 3 backwards
        harness.train_side_by_side([harness.Row("off", "bits:off"), harness.Row("stock")], [], tmp_path / "libpleat.so")
    for process in (int(path.stem) for path in tmp_path.glob("*.pid")):
        assert not pathlib.Path(f"/proc/{process}").exists()


def test_a_pleat_row_needs_the_library():
    with pytest.raises(harness.Problem, match="libpleat"):
        harness.environment(harness.Row("pleat", "bits:4"), None, 2)


def test_the_catalogue_and_the_modules_agree():
    files = {path.stem for path in (BENCH / "models").glob("*.py")} - {"__init__", "parts"}
    assert files == set(MODELS)


def test_the_training_script_does_not_know_pleat():
    for path in [BENCH / "train.py", *(BENCH / "models").glob("*.py"), ROOT / "tools" / "demo" / "train_chargpt.py"]:
        assert "import pleat" not in path.read_text()


def test_train_py_reads_its_own_memory():
    code = (
        "import train\n"
        "before = train.resident_bytes()\n"
        "hold = bytearray(b'x' * 100_000_000)\n"
        "grown = train.resident_bytes() - before\n"
        "assert 90e6 < grown < 130e6, grown\n"
        "assert train.status_bytes('VmHWM') >= train.status_bytes('VmRSS') - 4_000_000\n"
        "assert train.status_bytes('NoSuchField') == 0\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    done = subprocess.run([sys.executable, "-c", code], cwd=BENCH, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
