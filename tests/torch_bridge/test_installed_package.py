"""What `cmake --install` leaves behind, used as a stranger would: an outside project that calls
find_package(Pleat) builds the LibTorch example; its programs train, in less memory."""

import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import REPOSITORY, STOCK_ONLY, clean_environment

pytestmark = [pytest.mark.package, pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")]

STEPS = 6
CONF = "bits:4,min_bytes:0"


def run(command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, **options)


@pytest.fixture(scope="module")
def environment():
    return clean_environment("LD_") | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def prefix(build_dir, preload_library):
    folder = build_dir / "installed"
    shutil.rmtree(folder, ignore_errors=True)
    done = run(["cmake", "--install", build_dir, "--prefix", folder])
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def example(build_dir, prefix, torch_version, environment):
    """The example, built in a folder that is kept: unchanged sources are not compiled again."""
    folder = build_dir / "example"
    configure = ["cmake", "-S", REPOSITORY / "torch_bridge" / "example", "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}"]
    configure += ["-DPleat_TORCH_VERSION=" + ".".join(torch_version.split(".")[:2]), "-DCMAKE_BUILD_TYPE=Release"]
    if shutil.which("ccache"):
        configure += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    for command in (configure, ["cmake", "--build", folder]):
        done = run(command, env=environment)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def outcome(done):
    """(loss, peak KiB, times the saved parameter came back itself, backward calls)"""
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"loss (\S+), peak (\d+) KiB .* itself (\d+) times of (\d+)\n", done.stdout)
    assert found, done.stdout
    return float(found[1]), int(found[2]), int(found[3]), int(found[4])


@pytest.fixture(scope="module")
def stock(example, environment):
    done = run([example / "train_plain", STEPS], env=environment)
    assert done.stderr == ""
    return outcome(done)


def test_a_plain_libtorch_program_trains_in_less_memory_under_pleat_run(example, prefix, environment, stock):
    done = run(
        [prefix / "bin" / "pleat", "run", "--min-bytes", 0, "--verbose", 1, "--", example / "train_plain", STEPS],
        env=environment,
    )
    loss, peak, same, calls = outcome(done)
    assert loss != stock[0] and abs(loss - stock[0]) < 0.01 * stock[0]
    assert peak < 0.5 * stock[1]
    assert same == calls == stock[3] == 8 * STEPS  # its custom function gets the very parameter it saved
    assert f"{STEPS} backward passes" in done.stderr


def test_a_libtorch_program_without_python_has_a_trace(example, prefix, environment, tmp_path):
    trace = tmp_path / "run.trace"
    done = run([prefix / "bin" / "pleat", "trace", "record", "--bits", 4, "-o", trace, "--", example / "train_plain", STEPS],
               env=environment)  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith("loss "), done.stderr
    told = run([prefix / "bin" / "pleat", "trace", "summary", "--json", trace], env=environment)
    summary = json.loads(told.stdout)
    (host,) = summary["devices"]
    assert not summary["incomplete"] and summary["disagreements"] == summary["lost_events"] == 0
    assert len(host["steps"]) == STEPS and host["peak_live"]["phase"] in ("forward", "backward")
    assert host["moment"]["classes"]["parameters"] > 0 and host["compression"]["compressed"] > 0
    assert {row["op"] for row in host["by_operator"]} > {"aten::addmm", "aten::mul"}
    assert all(row["line"] is None for row in host["by_line"])


def test_without_loss_a_libtorch_program_computes_what_stock_computes(example, prefix, environment, stock):
    preload = {"LD_PRELOAD": str(prefix / "lib" / "libpleat.so"), "PLEAT_CONF": "bits:lossless,min_bytes:0"}
    done = run([example / "train_plain", STEPS], env=environment | preload)
    assert outcome(done)[0] == stock[0] and done.stderr == ""


@pytest.mark.parametrize("when", ["release", "forward_end"])
def test_a_program_that_switches_pleat_on_by_hand_trains_in_less_memory(example, environment, stock, when):
    done = run([example / "train_with_pleat", STEPS, f"{CONF},when:{when}"], env=environment)
    loss, peak, _, calls = outcome(done)
    assert calls == stock[3] and loss != stock[0] and abs(loss - stock[0]) < 0.01 * stock[0]
    assert peak < 0.6 * stock[1]
    assert f"{STEPS} backward passes" in done.stderr  # the start of backward is seen here too


@pytest.mark.parametrize("by_hand", [False, True])
def test_sensitivity_is_measured_and_nothing_else_changes(example, prefix, environment, by_hand):
    """In a program without Python, with the preload library and without: extra passes run its own function, too."""
    conf, steps = "bits:lossless,min_bytes:0,sensitivity:on,verbose:1", 11
    stock = outcome(run([example / "train_plain", steps], env=environment))
    if by_hand:
        done = run([example / "train_with_pleat", steps, conf], env=environment)
    else:
        preload = {"LD_PRELOAD": str(prefix / "lib" / "libpleat.so"), "PLEAT_CONF": conf}
        done = run([example / "train_plain", steps], env=environment | preload)
    loss, _, _, calls = outcome(done)
    assert loss == stock[0] and calls == stock[3] * (steps + 16) // steps
    assert "1 bursts, 16 extra passes" in done.stderr


def test_pleat_off_by_hand_is_stock(example, environment, stock):
    done = run([example / "train_with_pleat", STEPS, "bits:off"], env=environment)
    assert outcome(done)[0] == stock[0]


def test_a_bad_option_is_an_exception_that_names_it(example, environment):
    done = run([example / "train_with_pleat", STEPS, "bits:99"], env=environment)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("pleat: bits:99: allowed are off, lossless or 1..8")


@pytest.mark.parametrize(
    "setting, reason",
    [("-DPleat_TORCH_VERSION=1.0", "no bridge for torch 1.0"), ("-DPleat_TORCH_DIR=/nonexistent", "set Pleat_TORCH_DIR")],
)
def test_find_package_says_which_torch_is_missing(prefix, tmp_path, environment, setting, reason):
    source = REPOSITORY / "torch_bridge" / "example"
    done = run(["cmake", "-S", source, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", setting], env=environment)
    assert done.returncode != 0 and reason in " ".join(done.stderr.split())


def test_a_torch_found_before_decides_which_bridge_is_taken(prefix, test_python, torch_version, tmp_path, environment):
    """Torch's own configuration asks for a CUDA toolkit, so what it would have set is set here."""
    version = ".".join(torch_version.split(".")[:2])
    torch_dir = run([test_python, "-c", "import torch, os; print(os.path.dirname(torch.__file__))"]).stdout.strip()
    (tmp_path / "torch").symlink_to(torch_dir)
    (tmp_path / "CMakeLists.txt").write_text(
        f"""cmake_minimum_required(VERSION 3.22)
        project(Outside LANGUAGES CXX)
        set(Torch_FOUND TRUE)
        set(Torch_VERSION {torch_version})
        set(TORCH_INSTALL_PREFIX {tmp_path}/torch)
        find_package(Pleat REQUIRED)
        get_target_property(bridge Pleat::torch IMPORTED_LOCATION)
        get_target_property(headers Pleat::libtorch INTERFACE_INCLUDE_DIRECTORIES)
        message(STATUS "bridge ${{bridge}} headers ${{headers}}")
        """
    )
    done = run(["cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={prefix}"], env=environment)
    assert done.returncode == 0, done.stderr
    assert f"bridge {prefix}/lib/libpleat_bridge_torch{version}.so headers {tmp_path}/torch/include" in done.stdout


@pytest.mark.parametrize("what, stock, pleat", [("foreign", "1", "1"), ("double", "1 2", "0 1")])
def test_foreign_and_twice_freed_pointers_reach_stocks_deleter(
    prefix, build_dir, torch_version, environment, what, stock, pleat
):
    """The numbers count what reached free(): a pooled block's first free stays in the pool."""
    folder = build_dir / "misuse"
    source = REPOSITORY / "tests" / "torch_bridge" / "misuse"
    version = ".".join(torch_version.split(".")[:2])
    configure = ["cmake", "-S", source, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DPleat_TORCH_VERSION={version}"]
    for command in (configure, ["cmake", "--build", folder]):
        done = run(command, env=environment)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    done = run([folder / "misuse", what], env=environment)
    assert (done.returncode, done.stdout) == (0, stock + "\n"), done.stderr
    done = run([prefix / "bin" / "pleat", "run", "--", folder / "misuse", what], env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, pleat + "\n", "")
