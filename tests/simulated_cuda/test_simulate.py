"""The simulation itself: its refusals, its reports, and its behaviour as an ordinary driver."""

import json
import os
import subprocess

import pytest

pytest_plugins = ("simulated",)


@pytest.fixture
def start(stand_ins, simulation_environment, test_python, repository, tmp_path):
    """Runs simulate.py in a process of its own."""

    def run(*args, **more):
        return subprocess.run(
            [test_python, repository / "tests" / "simulated_cuda" / "simulate.py", *args],
            env=simulation_environment | more, cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip

    return run


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


@pytest.mark.smoke
def test_one_line_announces_the_simulation_and_arguments_and_exit_codes_pass(start, script):
    path = script("import sys, torch\ntorch.ones(3, device='cuda')\nprint(*sys.argv[1:])\nsys.exit(7)\n")
    done = start(path, "a", "--lag")
    assert done.returncode == 7
    assert done.stdout == "a --lag\n"
    assert done.stderr == "SIMULATED CUDA\n"


def test_a_script_that_uses_no_device_makes_no_context(start, script, tmp_path):
    done = start("--json", "facts.json", script("import torch\nassert torch.cuda.is_available()\n"))
    assert (done.returncode, done.stderr) == (0, "")
    assert '"cudaMalloc"' not in (tmp_path / "facts.json").read_text()


@pytest.mark.smoke
def test_a_function_that_is_not_simulated_ends_the_process_with_its_name(simulate):
    outcome = simulate(
        """
        import ctypes, torch
        ctypes.CDLL("libcuda.so.1").cuMulticastCreate(None, None)
        """
    )
    assert outcome.code == -6
    assert "SIMULATED CUDA: the function is not simulated: cuMulticastCreate" in outcome.stderr


def test_it_refuses_to_start_next_to_a_real_driver(stand_ins, tmp_path):
    """A library of that name stands for the driver."""
    driver = tmp_path / "libcuda.so.580.65"
    subprocess.run(["gcc", "-shared", "-o", driver, "-xc", os.devnull], check=True)
    cudart = (stand_ins / "preload").read_text().split(":")[0]
    for preload, code in ((cudart, 0), (f"{driver}:{cudart}", -6)):
        done = subprocess.run(["/bin/true"], env={"LD_PRELOAD": preload}, capture_output=True, text=True)
        assert done.returncode == code, preload
        assert ("refuses to start beside a real driver" in done.stderr) == (code != 0)


def test_a_forked_child_has_no_driver(simulate):
    outcome = simulate(
        """
        import ctypes, os, torch
        driver = ctypes.CDLL("libcuda.so.1")
        torch.ones(3, device="cuda")
        child = os.fork()
        if child == 0:
            os._exit(driver.cuCtxSynchronize())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3  # CUDA_ERROR_NOT_INITIALIZED
        assert driver.cuCtxSynchronize() == 0
        """
    )
    assert outcome.code == 0, outcome.stderr


def test_a_capturing_stream_forbids_the_same_calls_as_cuda(simulate):
    outcome = simulate(
        """
        import ctypes, torch
        driver = ctypes.CDLL("libcuda.so.1")
        x = torch.ones(3, device="cuda")
        event = torch.cuda.Event()
        event.record()
        graph = torch.cuda.CUDAGraph()
        status = ctypes.c_int()
        try:
            with torch.cuda.graph(graph):
                driver.cuStreamIsCapturing(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), ctypes.byref(status))
                assert status.value == 1
                x.add_(1)
                event.query()
        except RuntimeError as error:
            assert "capturing" in str(error) or "capture" in str(error), error
        else:
            raise SystemExit("nothing was forbidden")
        """
    )
    assert outcome.code == 0, outcome.stderr


def test_memory_has_the_requested_size(simulate):
    outcome = simulate(
        """
        import json, torch
        free, total = torch.cuda.mem_get_info()
        x = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError as error:
            print(json.dumps([total >> 20, str(error)[:26]]))
        """,
        memory=64,
    )
    assert outcome.result == [64, "CUDA out of memory. Tried "]
    assert outcome.facts["peaks"]["devices"] == [40 << 20]


def test_calls_are_counted_by_caller(simulate):
    outcome = simulate(
        """
        import ctypes, torch
        torch.ones(3, device="cuda")
        for _ in range(4):
            ctypes.CDLL("libcuda.so.1").cuCtxGetDevice(ctypes.byref(ctypes.c_int()))
        """
    )
    assert outcome.facts["calls"]["cuCtxGetDevice"] == {"torch": 0, "Pleat": 0, "other": 4}
    assert outcome.facts["calls"]["cudaMalloc"] == {"torch": 1, "Pleat": 0, "other": 0}


@pytest.mark.parametrize("configuration", ["expandable_segments:True", "backend:cudaMallocAsync"])
def test_torchs_other_allocators_train(start, repository, tmp_path, configuration):
    programs = repository / "tests" / "simulated_cuda" / "programs.py"
    done = start("--shadow", programs, "graph", "cuda", PYTORCH_CUDA_ALLOC_CONF=configuration)
    assert done.returncode == 0, done.stderr
    plain = start("--shadow", programs, "graph", "cuda")
    mine, native = json.loads(done.stdout), json.loads(plain.stdout)
    assert mine.pop("peak") > 0 and native.pop("peak") > 0
    assert mine == native


def test_a_host_function_runs_late_and_once(simulate):
    outcome = simulate(
        """
        import ctypes, json, torch
        torch.ones(3, device="cuda")
        driver, calls = ctypes.CDLL("libcuda.so.1"), []
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: calls.append(driver.cuCtxSynchronize()))
        assert driver.cuLaunchHostFunc(None, function, None) == 0
        assert driver.cuStreamSynchronize(None) == 0
        print(json.dumps(calls))
        """,
        lag=1000,
    )
    assert outcome.result == [800]  # CUDA_ERROR_NOT_PERMITTED: it must not call the driver


def test_pleat_leaves_devices_alone_and_trains_on_the_host(simulate, preload_library, repository):
    late_start = preload_library.with_name("libtest_late_start.so")
    outcome = simulate(
        repository / "tests" / "simulated_cuda" / "programs.py", "graph", "cuda",
        preload=(preload_library, late_start), conf="cuda:0,bits:lossless,min_bytes:0",
    )  # fmt: skip
    plain = simulate(repository / "tests" / "simulated_cuda" / "programs.py", "graph", "cuda")
    assert outcome.result == plain.result
    assert all(calls["Pleat"] == 0 for calls in outcome.facts["calls"].values())
