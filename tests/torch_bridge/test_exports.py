"""The exported symbols of the libraries that a job loads, and that the bridge stays mapped after dlclose."""

import re
import subprocess
import textwrap

import pytest

from conftest import REPOSITORY, STOCK_ONLY, clean_environment

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")

# Declarations of functions: a type, a name, arguments, the marker.
DECLARED = set(re.findall(r"^\w[\w* ]*?(pleat_\w+)\(", (REPOSITORY / "torch_bridge" / "c_abi.h").read_text(), re.M))


def exported(library):
    """(type, name) of each dynamic symbol; `u` is GNU_UNIQUE, `W` and `V` are weak."""
    command = ["nm", "-D", "--defined-only", library]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {tuple(line.split()[-2:]) for line in lines}


def functions(names):
    return {("T", name) for name in names}


def test_the_bridge_exports_the_c_abi(preload_library, torch_version):
    version = ".".join(torch_version.split(".")[:2])
    bridge = preload_library.with_name(f"libpleat_bridge_torch{version}.so")
    assert exported(bridge) == functions(DECLARED - {"pleat_recorder"}) and len(DECLARED) > 20


def test_the_cuda_library_exports_its_access(preload_library, torch_version):
    version = ".".join(torch_version.split(".")[:2])
    library = preload_library.with_name(f"libpleat_cuda_torch{version}.so")
    if not library.exists():
        pytest.skip("this torch has no CUDA")
    assert exported(library) == functions({"pleat_cuda_access"})


def test_the_recorder_exports_its_table(preload_library):
    assert exported(preload_library.with_name("libpleat_recorder.so")) == functions({"pleat_recorder"})


CLOSE_THE_BRIDGE = """
    import _ctypes, ctypes, sys, torch
    bridge = ctypes.CDLL(sys.argv[1])
    is_installed = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.cast(bridge.pleat_is_installed, ctypes.c_void_p).value)
    if sys.argv[2] == "install":
        assert bridge.pleat_install_late() == 0
    _ctypes.dlclose(bridge._handle)
    x = torch.ones(64, 64, requires_grad=True)
    (x.exp() * x.sigmoid()).sum().backward()
    print(is_installed(), sum(sys.argv[1] in line for line in open("/proc/self/maps")) > 0)
"""


@pytest.mark.parametrize("what, installed", [("load", "0"), ("install", "1")])
def test_the_bridge_stays_mapped_after_dlclose(preload_library, test_python, torch_version, what, installed):
    bridge = preload_library.with_name("libpleat_bridge_torch" + ".".join(torch_version.split(".")[:2]) + ".so")
    command = [test_python, "-c", textwrap.dedent(CLOSE_THE_BRIDGE), bridge, what]
    done = subprocess.run(command, env=clean_environment("LD_"), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, [installed, "True"]), done.stderr
