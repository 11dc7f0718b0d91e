"""tools/bench/codec.py: a tiny run has the promised names, and a run without rows fails in one line."""

import json
import pathlib
import subprocess
import sys

import pytest

from conftest import IN_CI

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench" / "codec.py"

PROMISED = ("encode_fp32_4bit_gbps", "decode_fp32_4bit_gbps", "memcpy_gbps", "memset_gbps")


@pytest.fixture
def codec(tmp_path):
    """Runs codec.py; its JSON and its output."""

    def call(binary, *arguments):
        command = [sys.executable, TOOL, "--binary", binary, "--json", tmp_path / "codec.json", *arguments]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / "codec.json").read_text()), done.stdout

    return call


@pytest.fixture(scope="module")
def binary(build_dir):
    path = build_dir / "bin" / "pleat_codec_bench"
    if not path.exists():
        needs_it = IN_CI and pathlib.Path("/usr/include/benchmark/benchmark.h").exists()
        (pytest.fail if needs_it else pytest.skip)(f"{path} is not built (needs libbenchmark-dev)")
    return path


def test_a_tiny_run_has_every_promised_name(codec, binary):
    rows = "encode/float32/bits:4|decode/float32/bits:4|mem"
    result, printed = codec(binary, "--mebibytes", 1, "--repeats", 2, "--filter", rows)
    for name in PROMISED:
        assert result[name] > 0
        first, second = result["repeats_gbps"][name]
        assert result[name] == pytest.approx((first + second) / 2, abs=0.001)
        assert name in printed
    for name in ("memcpy", "memset"):
        ways = [way for way in (f"{name}_whole_gbps", f"{name}_parts_gbps") if way in result]
        for repeat in range(2 if ways else 0):
            of_repeat = [result["repeats_gbps"][way][repeat] for way in ways]
            assert result["repeats_gbps"][f"{name}_gbps"][repeat] == max(of_repeat)
    # 128 bytes of codes and 8 of metadata for 256 elements, and the header
    assert result["encode_fp32_4bit_ratio"] == pytest.approx(1024 / 136, rel=0.01)
    for name, other in (("encode_fp32_4bit", "memcpy"), ("decode_fp32_4bit", "memset")):
        repeats = result["repeats_of_memory"][f"{name}_of_{other}"]
        assert result[f"{name}_of_{other}"] == pytest.approx(sum(repeats) / 2, abs=0.001)
    assert "encode_fp32_2bit_gbps" not in result
    assert result["gpu_encode_of_copy"] == result["gpu_decode_of_copy"] == "not measured"
    if result["isa"] != "avx512":
        assert result["avx2_of_avx512_encode_fp32_4bit"] == "not measured"
        assert any("no AVX-512" in note for note in result["notes"])
    assert all(bar["holds"] is None for bar in result["bars"]), "1 MiB judges nothing"


def test_a_run_of_nothing_says_so(codec, binary):
    command = [sys.executable, TOOL, "--binary", binary, "--repeats", "1", "--filter", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "Failed to match" in done.stderr
