"""Builds unit-test programs under a compiler's sanitizers, next to the tests' own build."""

import os
import platform
import shutil
import subprocess

from conftest import REPOSITORY


def run(command, **variables):
    """Standard output and error of a command that must succeed; `variables`: of its environment, in addition to the
    tests'."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env={**os.environ, **variables})
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout[-6000:]}"
    return done.stdout


def build(folder, preset, *targets):
    """The folder with the programs of `targets`, configured in `folder` by a preset of CMakePresets.json."""
    run(["cmake", "--preset", preset, "-S", REPOSITORY, "-B", folder])
    run(["cmake", "--build", folder, "--target", *targets, "--parallel", os.cpu_count()])
    return folder / "bin"


def at_fixed_addresses():
    """The command prefix for a program of the thread sanitizer: GCC 12's fails at the addresses of newer kernels. Empty if
    containers forbid it."""
    words = ["setarch", platform.machine(), "--addr-no-randomize"]
    allowed = shutil.which("setarch") and subprocess.run([*words, "true"], stderr=subprocess.DEVNULL).returncode == 0
    return words if allowed else []
