"""The allocator's unit tests built with the thread sanitizer: among them a release that races unpack and drop."""

import os
import platform
import shutil
import subprocess

from conftest import REPOSITORY


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout[-6000:]}"
    return done.stdout


def test_no_data_race(build_dir):
    folder = build_dir / "tsan"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run(["cmake", "-S", REPOSITORY, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
         "-DPLEAT_SANITIZE=thread", "-DPLEAT_BUILD_BRIDGE=OFF", "-DPLEAT_BUILD_BENCHMARKS=OFF"])
    run(["cmake", "--build", folder, "--target", "allocator_test", "--parallel", str(os.cpu_count())])
    # Without address randomisation: the sanitizer of GCC 12 does not know where newer kernels map things.
    fixed = ["setarch", platform.machine(), "--addr-no-randomize"] if shutil.which("setarch") else []
    if fixed and subprocess.run([*fixed, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        fixed = []  # containers may forbid it
    # fork() beside running threads is what the sanitizer does not follow.
    out = run([*fixed, folder / "bin" / "allocator_test", "--gtest_filter=-*.*Fork*"],
              env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1"})
    assert "[       OK ] ResidencyTest.ReleaseRacingUnpackReturnsTheBytes" in out
    assert "WARNING: ThreadSanitizer" not in out
