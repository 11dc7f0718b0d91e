"""Fixtures of the preload library's tests: the library itself, and a torch that is a few lines of C.

A plugin and not a conftest: other folders import names from the one `conftest` there is.
"""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from conftest import clean_environment

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def libpleat(build_dir):
    library = build_dir / "lib" / "libpleat.so"
    if not library.exists():
        missing = pytest.fail if os.environ.get("CI") else pytest.skip
        missing(f"{library} is not built")
    return library


@pytest.fixture(scope="session")
def bare_environment():
    """Ours without anything that would reach the loader or Pleat."""
    return clean_environment("LD_", "FAKE_", "ASAN_", "LSAN_", "UBSAN_", "TSAN_")


@pytest.fixture(scope="session")
def build_library():
    """Makes a shared library of a few lines of C."""

    def build(source, target, *flags):
        command = ["gcc", "-shared", "-fPIC", "-w", "-o", target, "-xc", "-", "-xnone", *flags]
        done = subprocess.run(command, input=source, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return build


@dataclasses.dataclass
class FakeTorch:
    folder: pathlib.Path  # holds torch/version.py, torch/lib/*.so, pleat/libpleat.so, host, program
    environment: dict

    @property
    def libraries(self):
        return self.folder / "torch" / "lib"

    @property
    def pleat(self):
        return self.folder / "pleat" / "libpleat.so"

    def bridge(self, version="2.11"):
        """Puts the bridge for a version beside libpleat.so; returns its path."""
        target = self.pleat.parent / f"libpleat_bridge_torch{version}.so"
        shutil.copy(self.folder / "bridge.so", target)
        return target

    def version(self, text, file="version.py"):
        for old in ("version.py", "build-version"):
            (self.folder / "torch" / old).unlink(missing_ok=True)
        (self.folder / "torch" / file).write_text(text)

    def _run(self, command, preload, options, **variables):
        environment = self.environment | variables
        if preload:
            environment["LD_PRELOAD"] = str(self.pleat if preload is True else preload)
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, **options
        )

    def run(self, preload=True, arguments=(), options=None, **variables):
        """`import torch` and a training step in the stand-in interpreter."""
        command = [self.folder / "host", self.libraries / "libtorch_python.so", *arguments]
        return self._run(command, preload, options or {}, **variables)

    def run_program(self, preload=True, **variables):
        """A program linked to LibTorch."""
        return self._run([self.folder / "program"], preload, {}, **variables)


@pytest.fixture(scope="session")
def compiled_fakes(repository):
    """Compiles every part once. World-readable, for the set-uid test."""
    with tempfile.TemporaryDirectory(prefix="pleat_fake_") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        (folder / "lib").mkdir()

        def compile(part, output, *flags):
            command = ["gcc", "-O1", "-fPIC", "-pthread", f"-I{repository}", f"-DFAKE_{part}"]
            command += [str(HERE / "fake_torch.c"), "-o", str(folder / output), *flags]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr

        torch = [f"-L{folder}/lib", "-ltorch_cpu"]
        compile("CPU", "lib/libtorch_cpu.so", "-shared")
        compile("PYTHON", "lib/libtorch_python.so", "-shared", *torch, "-Wl,-rpath,$ORIGIN")
        compile("BRIDGE", "bridge.so", "-shared")
        compile("HOST", "host")
        compile("PROGRAM", "program", *torch, "-Wl,-rpath,$ORIGIN/torch/lib")
        # The whole of torch in one library of another name, as static builds have it.
        one = "lib/libeverything.so"
        compile("PYTHON", one, "-DFAKE_CPU", "-shared")
        yield folder


@pytest.fixture
def fake_torch(compiled_fakes, libpleat, bare_environment):
    with tempfile.TemporaryDirectory(prefix="pleat_torch_") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        (folder / "torch").mkdir()
        (folder / "pleat").mkdir()
        shutil.copytree(compiled_fakes / "lib", folder / "torch" / "lib")
        for part in ("host", "program", "bridge.so"):
            shutil.copy(compiled_fakes / part, folder)
        shutil.copy(libpleat, folder / "pleat")
        fake = FakeTorch(folder, bare_environment)
        fake.version("from typing import Optional\n\n__version__ = '2.11.0+cu130'\ndebug = False\n")
        yield fake
