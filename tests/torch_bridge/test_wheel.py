"""What `pip install --no-build-isolation .` builds, in an environment of its own. Compiles the bridge
(minutes), so it runs in CI and where it is asked for: pytest tests -m package."""

import os
import shutil
import subprocess

import pytest

from conftest import REPOSITORY, STOCK_ONLY, clean_environment

pytestmark = [pytest.mark.package, pytest.mark.slow, pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")]

STEP = """
import sys, torch, pleat
first, last = torch.nn.Linear(400, 400), torch.nn.Linear(400, 10)
def gate(h):
    return h.sigmoid() * h.tanh()
h = gate(first(torch.linspace(-1, 1, 300 * 400).reshape(300, 400)))
loss = torch.nn.functional.cross_entropy(last(h), torch.arange(300) % 10)
del h
loss.backward()
print(pleat.stats()["records"]["encoded"], pleat.__file__.startswith(sys.prefix))
"""


def run(*command, **variables):
    done = subprocess.run(
        [str(word) for word in command],
        env=clean_environment("LD_", "PIP_") | {"OMP_NUM_THREADS": "1"} | variables,
        cwd=os.fspath(REPOSITORY.parent),  # not the checkout, whose folders Python would import
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def environment(test_python, tmp_path_factory):
    """A virtual environment with the wheel, and with the packages of the tests' own."""
    folder = tmp_path_factory.mktemp("wheel")
    # By the names that CMake calls the compilers by: ccache then knows what set-up has compiled.
    run(
        test_python, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", folder, REPOSITORY,
        CC="cc", CXX="c++", SKBUILD_CMAKE_DEFINE="PLEAT_CCACHE=ON;PLEAT_CUDA_ARCHITECTURES=90",  # one is enough to see that kernels are built
    )  # fmt: skip
    (wheel,) = folder.glob("pleat-*.whl")
    assert wheel.name.endswith("linux_x86_64.whl"), "it holds machine code"
    run(test_python, "-m", "venv", "--without-pip", folder / "venv")
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    borrowed = run(test_python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    (packages / "borrowed.pth").write_text(borrowed + "\n")
    run(test_python, "-m", "pip", "--python", folder / "venv" / "bin" / "python", "install", "--no-deps", "--no-index", wheel)
    return folder / "venv" / "bin"


def test_it_requires_the_release_of_torch_that_its_bridge_is_for(environment, torch_version):
    source = "import importlib.metadata as m; print(*m.requires('pleat'))"
    assert run(environment / "python", "-c", source).strip() == "torch==" + ".".join(torch_version.split(".")[:2]) + ".*"


def test_it_holds_the_licence_of_plotly_beside_plotly(environment):
    notices = [file.parent / "NOTICE" for file in environment.parent.rglob("pleat/share/pleat/plotly.min.js")]
    assert notices and all("MIT License" in notice.read_text() for notice in notices)


def test_import_torch_is_enough_where_the_wheel_is_installed(environment):
    encoded, own = run(environment / "python", "-c", STEP, PLEAT_CONF="bits:4,min_bytes:0").split()
    assert int(encoded) >= 2 and own == "True"


SOURCE_ARCHIVE = """
import os, sys
os.chdir(sys.argv[1])
from scikit_build_core.build import build_sdist
print(build_sdist(sys.argv[2]))
"""


def test_a_source_archive_has_what_its_build_needs_and_needs_no_nvcc(test_python, tmp_path):
    archive = run(test_python, "-c", SOURCE_ARCHIVE, REPOSITORY, tmp_path).split()[-1]
    shutil.unpack_archive(tmp_path / archive, tmp_path)
    # An empty name is what CMake takes for an nvcc that it need not look for and that is not there.
    printed = run(
        "cmake", "-S", tmp_path / archive.removesuffix(".tar.gz"), "-B", tmp_path / "build", "-DPLEAT_BUILD_TESTS=OFF",
        "-DPLEAT_BUILD_BENCHMARKS=OFF", "-DPLEAT_NVCC=", f"-DPLEAT_PYTHON={test_python}",
    )  # fmt: skip
    assert "CUDA kernels: not built, since there is no nvcc" in printed


def test_its_command_finds_its_libraries(environment, torch_version):
    assert run(environment / "pleat", "--version").startswith("pleat ")
    doctor = run(environment / "pleat", "doctor", "--python", environment / "python")
    assert torch_version in doctor
    command = [environment / "pleat", "run", "--bits", 4, "--min-bytes", 0, "--", environment / "python", "-c", STEP]
    encoded, own = run(*command).split()
    assert int(encoded) >= 2 and own == "True"
