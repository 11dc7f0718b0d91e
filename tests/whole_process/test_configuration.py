"""PLEAT_CONF; and a process without torch is not affected by Pleat."""

import os
import re
import resource
import statistics
import subprocess

import pytest

from conftest import LOSSY, STOCK_ONLY

TINY = """
    import torch, pleat_test_support as t
    first, last = torch.nn.Linear(512, 512), torch.nn.Linear(512, 16)
    def loss():
        h = first(t.noise(256, 512, seed=1))
        return last(h.sigmoid() * h.tanh()).sum()
    loss().backward()
    t.emit(finite=all(bool(p.grad.isfinite().all()) for p in first.parameters()))
"""

DEEP = """
    import torch, pleat_test_support as t
    x = t.noise(1 << 14, 32, seed=1)
    net = torch.nn.Sequential(*(layer for _ in range(24) for layer in (torch.nn.Linear(32, 32), torch.nn.Tanh())))
    for step in range(6):
        net(x).sum().backward()
    t.emit(report=t.report())
"""
MEMORY = re.compile(
    r"  memory +tensors took ([\d.]+) MB at the peak, without compression about ([\d.]+) MB \(estimate\);"
    r" encoding took ([\d.]+) s, decoding ([\d.]+) s"
)


def reported(result):
    """Peak and estimate in MB, seconds of encoding and of decoding, from the line after the title."""
    title, memory, *_ = result.json["report"].splitlines()
    assert title == "pleat: report"
    return [float(number) for number in MEMORY.fullmatch(memory).groups()]


BAD = {  # tests/tools/options_test.cpp has all kinds
    "unknown key": ("bitz:4", ["bitz"], 1),
    "bits no number": ("bits:banana", ["bits", "banana", "lossless"], 1),
    "no colon": ("bits", ["bits"], 1),
    "two problems": ("bits:99,when:never", ["bits", "when"], 2),
    "a good one among them": ("min_bytes:0,bitz:4", ["bitz"], 1),
    "64 kB key": ("x" * 65536, [], 1),
    "64 kB value": ("bits:" + "9" * 65536, ["bits"], 1),
    "control characters": ("bits:\x1b[31m\x07", ["bits"], 1),
}


@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
@pytest.mark.parametrize("case", BAD)
def test_a_bad_option_is_one_line_and_the_job_runs(run_script, case):
    conf, words, lines = BAD[case]
    # In a process of its own where the environment is large, and once where it is not.
    fresh = len(conf) > 1000 or case == "unknown key"
    result = run_script(TINY, conf=conf, fresh=fresh).check()
    assert result.json["finite"]
    printed = result.stderr.splitlines()
    assert len(printed) == lines, result.stderr[:3000]
    assert all(len(line) < 400 for line in printed)
    assert "\x1b" not in result.stderr and "\x07" not in result.stderr
    for word in words:
        assert word in result.stderr, f"{word!r} missing in: {result.stderr}"
    assert "pleat" in printed[0].lower()
    assert result.stats["enabled"]


@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
@pytest.mark.parametrize("conf", [None, "", " bits : 4 , min_bytes : 0 ,", "bits:8,bits:4", ",,,"])
def test_good_options_print_no_line(run_script, conf):
    result = run_script(TINY, conf=conf).active()
    assert result.stderr == ""


@pytest.mark.smoke
@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
def test_a_bad_value_leaves_the_default_and_the_other_options_in_force(run_script):
    options = run_script(TINY, conf="min_bytes:0,bits:99,seed:7").check().stats["options"]
    assert (options["min_bytes"], options["bits"], options["seed"]) == ("0", "4", "7")


@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
def test_options_of_tests_are_unknown_to_users(run_script):
    result = run_script(TINY, conf=None, env={"PLEAT_CONF": "min_bytes:0,rule:assumed,bits:8"}).active()
    (line,) = result.stderr.splitlines()
    assert line.startswith("pleat: PLEAT_CONF: rule:assumed: no such key; known are bits, ")
    assert result.stats["options"]["bits"] == "8" and "rule" not in result.stats["options"]


@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
def test_verbose_prints_one_report_at_exit(run_script):
    result = run_script(TINY, conf="bits:4,min_bytes:0,verbose:1", fresh=True).active()
    title, memory, *rest = result.stderr.splitlines()
    assert title == "pleat: report" and MEMORY.fullmatch(memory) and len(rest) > 3, result.stderr
    assert result.stdout == "", "standard output is the script's own"


@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
def test_the_report_begins_with_memory_in_one_line_that_matches_the_counters(run_script):
    result = run_script(DEEP, conf=LOSSY).active()
    peak, estimate, encoding, decoding = reported(result)
    bytes_, records, time = (result.stats[name] for name in ("bytes", "records", "time"))
    freed = (records["source_bytes"] - records["payload_bytes"]) / records["backward_passes"]
    assert peak == pytest.approx(bytes_["requested"]["peak"] / 1e6, abs=0.51)
    assert estimate == pytest.approx((bytes_["requested"]["peak"] + freed) / 1e6, abs=0.51)
    assert encoding == pytest.approx(time["encode_ns"] / 1e9, abs=0.0051)
    assert decoding == pytest.approx(time["decode_ns"] / 1e9, abs=0.0051)


@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
def test_the_report_estimates_the_memory_of_a_run_without_compression(run_script):
    peak, estimate, _, _ = reported(run_script(DEEP, conf=LOSSY).active())
    off = run_script(DEEP, conf="bits:off,min_bytes:0").check()
    taken = off.stats["bytes"]["requested"]["peak"] / 1e6
    assert peak < 0.4 * taken and estimate == pytest.approx(taken, rel=0.1)
    title, memory, *_ = off.json["report"].splitlines()
    assert title == "pleat: report" and memory.endswith(f"tensors took {taken:.0f} MB at the peak; nothing was compressed")


@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
def test_below_min_bytes_no_tensor_is_touched(run_script):
    result = run_script(TINY, conf="bits:4,min_bytes:10000000").check()
    assert result.records("tagged") == 0


@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
def test_disable_and_enable_through_the_c_abi(run_script):
    source = """
        import torch, pleat_test_support as t
        a = t.activations(t.noise(256, 512, seed=1))
        def step():
            t.total((a * 1.5).sigmoid() * a.tanh()).backward()
            return t.count("tagged")
        counts = [step()]
        t.bridge().disable(); counts.append(step())
        t.bridge().enable(""); counts.append(step())
        t.bridge().library.pleat_exempt_enter(); counts.append(step())
        t.bridge().library.pleat_exempt_exit(); counts.append(step())
        try:
            t.bridge().enable("bits:99")
            refused = False
        except RuntimeError as error:
            refused = "99" in str(error)
        t.emit(counts=counts, refused=refused)
    """
    got = run_script(source, conf=LOSSY).active().json
    a, b, c, d, e = got["counts"]
    assert 0 < a == b < c == d < e and got["refused"]


@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
def test_torch_is_imported_without_a_thread_or_a_file_of_pleat(run_pair):
    source = """
        import os, torch, pleat_test_support as t
        links = []
        for fd in os.listdir("/proc/self/fd"):
            try: links.append(os.readlink(f"/proc/self/fd/{fd}"))
            except OSError: pass
        links = sorted(l.split("[")[0] if l.startswith(("pipe", "socket")) else l for l in links if "/proc/" not in l)
        t.emit(threads=t.status_kib("Threads"), links=links)
    """
    pair = run_pair(source, conf=LOSSY, fresh=True)
    assert pair.pleat.json["threads"] == pair.stock.json["threads"]
    assert pair.pleat.json["links"] == pair.stock.json["links"]


PROGRAMS = {
    "true": ["/bin/true"],
    "bash": ["/bin/bash", "-c", "echo $BASH_VERSION; (exit 3)"],
    "python": ["python", "-c", "pass"],
    "status": ["/bin/grep", "-E", "^(Threads|FDSize):", "/proc/self/status"],
    "descriptors": ["/bin/ls", "/proc/self/fd"],
    "failing": ["/bin/cat", "/nonexistent"],
}


def cpu_seconds_of(command, environment, directory):
    """CPU time and output of one run: a busy machine makes a run longer, but adds no CPU time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(command, capture_output=True, env=environment, cwd=directory)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, (result.returncode, result.stdout, result.stderr)


@pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_process_without_torch_is_not_affected(name, preload_library, test_python, tmp_path):
    """80 runs each way, alternating: same output, same exit code, no file, under 1 ms more CPU time.

    The cost of a round is the median of its paired differences; up to three rounds, for a neighbour
    on the machine may spoil one, while a real millisecond would be in all of them.
    """
    command = [str(test_python) if word == "python" else word for word in PROGRAMS[name]]
    plain = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PLEAT_CONF")}
    preloaded = {**plain, "LD_PRELOAD": str(preload_library), "PLEAT_CONF": LOSSY + ",verbose:1"}
    outputs, rounds = (set(), set()), []
    while len(rounds) < 3 and (not rounds or min(rounds) >= 1e-3):
        differences = []
        for _ in range(80):
            without, answer = cpu_seconds_of(command, plain, tmp_path)
            outputs[0].add(answer)
            with_pleat, answer = cpu_seconds_of(command, preloaded, tmp_path)
            outputs[1].add(answer)
            differences.append(with_pleat - without)
        rounds.append(statistics.median(differences))
    assert outputs[0] == outputs[1] and len(outputs[0]) == 1
    assert not list(tmp_path.iterdir())
    assert min(rounds) < 1e-3, f"{min(rounds) * 1e3:.2f} ms more at start"
