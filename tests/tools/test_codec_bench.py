"""tools/bench/codec.py: the names it promises, the faster way of copying, the bars; a tiny run, and a stand-in's figures."""

import json
import pathlib
import stat
import subprocess
import sys
import textwrap

import pytest

from conftest import IN_CI

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench" / "codec.py"

PROMISED = ("encode_fp32_4bit_gbps", "decode_fp32_4bit_gbps", "memcpy_gbps", "memset_gbps")


@pytest.fixture
def codec(tmp_path):
    """Runs codec.py; its JSON and what it printed."""

    def call(binary, *arguments):
        command = [sys.executable, TOOL, "--binary", binary, "--json", tmp_path / "codec.json", *arguments]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / "codec.json").read_text()), done.stdout

    return call


# A tiny run of the real thing.


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


# A stand-in for pleat_codec_bench, on a machine with AVX-512: figures by hand.


@pytest.fixture
def stand_in(tmp_path):
    path = tmp_path / "bench"
    path.write_text(
        f"#!{sys.executable}\n"
        + textwrap.dedent(
            """
            import json, pathlib, re, sys
            options = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
            isa = options.get("isa", "avx512")
            runs = pathlib.Path(sys.argv[0] + ".runs")
            turn = len(runs.read_text().split()) if runs.exists() else 0
            with runs.open("a") as file:
                print(isa, file=file)
            rows = {
                "memcpy/whole": 8, "memcpy/parts": 10, "memset/whole": 20, "memset/parts": 16,
                "encode/float32/bits:4": 12, "decode/float32/bits:4": 17,
                "encode/bfloat16/bits:4": 7, "encode/float16/bits:4": 6, "encode/bool": 9, "encode/int64": 7.9,
            }
            if turn == 1:  # the second repeat: the other way of copying is the faster one
                rows |= {"memcpy/whole": 12, "memcpy/parts": 6}
            if isa == "avx2":
                rows |= {"encode/float32/bits:4": 9, "decode/float32/bits:4": 8.5}
            found = []
            for name, speed in rows.items():
                for threads in (1, 2):
                    full = f"{name}/threads:{threads}/real_time"
                    if re.search(options["benchmark_filter"], full):
                        found.append({"name": full, "bytes_per_second": speed * 1e9 / (3 - threads)})
                        if name.startswith("encode"):
                            found[-1]["ratio"] = 7.95 if "bool" in name else 3.5
            print(json.dumps({"context": {"isa": isa}, "benchmarks": found}))
            """
        )
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def bars(result):
    return {bar["name"]: (bar["seen"], bar["holds"]) for bar in result["bars"]}


def test_the_faster_way_of_each_process_counts(codec, stand_in):
    result, _ = codec(stand_in, "--repeats", 2)
    assert result["repeats_gbps"]["memcpy_gbps"] == [10, 12]
    assert (result["memcpy_whole_gbps"], result["memcpy_parts_gbps"], result["memcpy_gbps"]) == (10, 8, 11)
    assert result["memset_gbps"] == 20
    assert result["repeats_of_memory"]["encode_fp32_4bit_of_memcpy"] == [1.2, 1.0]
    assert result["encode_fp32_4bit_of_memcpy"] == pytest.approx(1.1)


def test_bars_are_judged_at_their_size(codec, stand_in):
    result, printed = codec(stand_in, "--repeats", 1)
    found = bars(result)
    assert found["encode_fp32_4bit_of_memcpy"] == (1.2, True)
    assert found["decode_fp32_4bit_of_memset"] == (0.85, False)
    assert found["encode_bf16_4bit_of_memcpy"] == (0.7, True)
    assert found["encode_fp16_4bit_of_memcpy"] == (0.6, False)
    assert found["encode_bool_of_memcpy"] == (0.9, True)
    assert found["encode_int64_of_memcpy"] == (0.79, False)
    assert found["encode_bool_ratio"] == (7.95, True)
    assert found["encode_int64_ratio"] == (3.5, False)
    assert found["encode_bf16_2bit_of_memcpy"] == ("not measured", None)
    lines = dict(line.split(maxsplit=1) for line in printed.splitlines() if line.startswith(tuple(found)))
    assert lines["encode_fp32_4bit_of_memcpy"].endswith("holds")
    assert lines["encode_int64_ratio"].endswith("MISSED")
    for other in (["--mebibytes", 64], ["--threads", 1], ["--isa", "scalar"]):
        judged = bars(codec(stand_in, "--repeats", 1, *other)[0])
        assert all(holds is None for _, holds in judged.values()), other


def test_avx2_is_held_against_avx512_in_one_more_process(codec, stand_in):
    result, _ = codec(stand_in, "--repeats", 2)
    assert pathlib.Path(f"{stand_in}.runs").read_text().split() == ["avx512", "avx512", "avx2"]
    assert bars(result)["avx2_of_avx512_encode_fp32_4bit"] == (0.75, True)
    assert bars(result)["avx2_of_avx512_decode_fp32_4bit"] == (0.5, False)


def test_a_filter_is_a_whole_alternative(codec, stand_in):
    result, _ = codec(stand_in, "--repeats", 1, "--filter", "encode/bool|encode/int64")
    assert list(result["repeats_gbps"]) == ["encode_bool_gbps", "encode_int64_gbps"]
    assert result["encode_bool_gbps"] == 9, "of two threads"
    assert result["avx2_of_avx512_encode_fp32_4bit"] == "not measured"


def gpu_row(kind, bits, transform, size, encode, decode):
    return {
        "type": kind,
        "bits": bits,
        "transform": transform,
        "source_mib": size,
        "encode_of_copy": encode,
        "decode_of_copy": decode,
    }


def test_a_gpus_figures_are_the_least_at_four_bits(codec, stand_in, tmp_path):
    speed = [
        gpu_row("float32", 4, "none", 64, 0.93, 0.86),
        gpu_row("float16", 4, "none", 256, 0.91, 0.84),
        gpu_row("float16", 4, "rotated", 256, 0.4, 0.3),
        gpu_row("float16", 1, "none", 256, 0.7, 0.6),
    ]
    report = tmp_path / "gpu.json"
    report.write_text(json.dumps({"gpu": "H100", "payloads_wrong": 0, "speed": speed}))
    result, _ = codec(stand_in, "--repeats", 1, "--mebibytes", 8, "--gpu", report)
    assert bars(result)["gpu_encode_of_copy"] == (0.91, True)
    assert bars(result)["gpu_decode_of_copy"] == (0.84, False)
    assert result["gpu_decode_rotated_fp16_4bit_256mib_of_copy"] == 0.3


def test_without_a_gpu_its_rows_say_so(codec, stand_in, tmp_path):
    report = tmp_path / "gpu.json"
    report.write_text('{"gpu": null, "reason": "no device"}')
    result, _ = codec(stand_in, "--repeats", 1, "--gpu", report)
    assert bars(result)["gpu_encode_of_copy"] == ("not measured", None)
    assert any("no device" in note for note in result["notes"])
