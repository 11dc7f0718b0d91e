"""Builds unit-test programs under a compiler's sanitizers, beside the tests' own build."""

import os
import shutil
import subprocess

from conftest import REPOSITORY


def run(command, **variables):
    """Standard output and error of a command that must succeed; `variables`: of its environment, beside ours."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env={**os.environ, **variables})
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout[-6000:]}"
    return done.stdout


def build(folder, sanitizers, *targets):
    """The folder with the programs of `targets`, built in `folder`; `sanitizers` as -fsanitize= takes them."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run(["cmake", "-S", REPOSITORY, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
         "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -DNDEBUG",  # as the presets: half of what -O2 -g takes to compile
         f"-DPLEAT_SANITIZE={sanitizers}", "-DPLEAT_BUILD_BRIDGE=OFF", "-DPLEAT_BUILD_BENCHMARKS=OFF"])
    run(["cmake", "--build", folder, "--target", *targets, "--parallel", os.cpu_count()])
    return folder / "bin"
