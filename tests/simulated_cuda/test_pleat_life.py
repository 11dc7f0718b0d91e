"""From import to exit: Pleat makes no driver call before torch does, none in a forked child and none at the end. Its memory
does not grow while a job trains."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from codings import CODINGS, EXACT, LOSSLESS, OFF, with_kernels

pytest_plugins = ("simulated",)
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "whole_process"))

from test_steps import WITHOUT_END  # noqa: E402

MANY_STEPS = """
import ctypes, gc, json, torch
from pleat_test_support import activations, emit, noise, stats, total
runtime = ctypes.CDLL("libcudart.so.13")
for name in ("simulated_cuda_events", "simulated_cuda_pinned"):
    runtime[name].restype = ctypes.c_size_t
    setattr(runtime, name, runtime[name])

def alive():
    counters = stats()
    return None if counters is None else [counters["records"]["alive"], *(d["records"]["alive"] for d in counters.get("devices", []))]

def now():
    gc.collect()
    torch.cuda.synchronize()
    return [torch.cuda.memory_allocated(), runtime.simulated_cuda_pinned(), runtime.simulated_cuda_events(), alive()]

torch.empty(1, device="cuda")
side, main = torch.cuda.Stream(), torch.cuda.current_stream()
base = now()
w = torch.nn.Parameter(noise(32, 32, seed=1).cuda())
u = torch.nn.Parameter(noise(32, 32, seed=3).cuda())
hidden = True  # a constant in the call makes all of the script exact
kept = total((activations(noise(32, 32, seed=2).cuda()).sin() @ w).exp())  # a graph that outlives the steps
taken = {}
for step in range(300):
    x = noise(64, 32, seed=step % 7).cuda()
    side.wait_stream(main)
    x.record_stream(side)
    with torch.cuda.stream(side):
        a = (x @ w).tanh()
    b = (x @ w).sin()
    main.wait_stream(side)
    a.record_stream(main)
    total((a * b).exp()).backward(retain_graph=step % 3 == 0)
    del a, b, x
    w.grad = None
    if step % 50 == 0:  # the second derivative
        first, = torch.autograd.grad((u @ u).sin().sum(), u, create_graph=hidden)
        first.square().sum().backward()
        del first
        u.grad = None
    if step in (19, 299):
        taken[step] = now()
kept.backward()
del kept, w, u
end = now()
emit(base=base, early=taken[19], late=taken[299], end=end)
"""


@pytest.mark.parametrize("lag, seed", [(0, 0), (40, 3)])
@pytest.mark.parametrize("conf", CODINGS)
def test_held_memory_is_the_same_after_20_and_300_steps_and_freed_with_the_graph(conf, lag, seed, under_pleat):
    outcome = under_pleat(MANY_STEPS, conf=conf, lag=lag, seed=seed)
    values = outcome.values
    assert values["late"] == values["early"]
    allocated, _, _, alive = values["end"]
    workspaces = 33554432  # of cuBLAS, one per stream that has multiplied; torch's own
    assert allocated % workspaces == values["base"][0], values
    assert sum(alive) == 0
    assert outcome.reports == []


def test_forward_passes_without_a_backward_pass_leave_no_memory_behind(under_pleat):
    outcome = under_pleat(WITHOUT_END, "cuda", 700, conf="cuda:1,bits:4,min_bytes:0")
    assert max(outcome.values["grown"]) < 64 << 10, outcome.values


def calls_of_the_driver(path):
    return {name: calls for name, calls in json.loads(path.read_text())["calls"].items() if name.startswith("cu")}


@pytest.mark.smoke
def test_pleat_makes_no_driver_call_before_torch_does(fresh, tmp_path):
    """In a script that imports torch and trains on the host, all driver calls are stock's."""
    script = tmp_path / "script.py"
    script.write_text("import torch\nx = torch.ones(100000, requires_grad=True)\nx.exp().sum().backward()\n")
    for name, conf in (("stock", None), ("pleat", LOSSLESS)):
        done = fresh("--json", tmp_path / name, script, conf=conf)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert calls_of_the_driver(tmp_path / "pleat") == calls_of_the_driver(tmp_path / "stock")


FORKS = """
import gc, os, threading, torch
from pleat_test_support import activations, emit, noise, total
w = torch.nn.Parameter((noise(64, 64, seed=1) * 0.1).cuda())
side = torch.cuda.Stream()
y = ((activations(noise(64, 64, seed=2).cuda()) @ w).sin() @ w).tanh()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    z = total(y.exp())
held = [z]
del y
child = os.fork()
if child == 0:
    held.clear()
    del z  # and the graph, with all that it has saved
    gc.collect()
    x = torch.ones(100000, requires_grad=True)
    x.sin().exp().sum().backward()
    os._exit(0 if bool((x.grad != 0).all()) else 1)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
torch.cuda.current_stream().wait_stream(side)
z.backward()
torch.cuda.synchronize()
emit(code=code, grad=w.grad.cpu())
"""


@pytest.mark.parametrize("conf", CODINGS)
def test_a_forked_child_that_drops_a_graph_makes_no_call_of_the_driver(conf, same_as_stock):
    outcome = same_as_stock(FORKS, conf, lag=40, seed=1)
    assert outcome.values["code"] == 0


EXITS = """
import threading, torch
w = torch.ones(64, 64, device="cuda", requires_grad=True)
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    y = ((w @ w).sin() @ w).tanh().exp()  # lives to the end, with its graph
class Late:
    def __init__(self, graph):
        self.graph = graph
    def __del__(self):
        del self.graph
torch.late = Late(((w @ w).sin().exp() @ w).tanh())  # dies with torch
END
"""
ENDS = {
    "at the end of the script": "",
    "by an exception": "raise SystemExit(0)",
    "while a thread waits": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_well_with_a_graph_alive(end, fresh, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(EXITS.replace("END", ENDS[end]))
    done = fresh("--shadow", "--lag", 100, script, conf=LOSSLESS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "SIMULATED CUDA\n")


def test_a_bad_value_of_the_option_is_reported_in_one_line(fresh, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import torch\nx = torch.ones(9, device='cuda', requires_grad=True)\nx.exp().sum().backward()\n")
    done = fresh(script, conf="cuda:2")
    lines = done.stderr.splitlines()
    assert done.returncode == 0
    assert [line for line in lines if line != "SIMULATED CUDA"] == [line for line in lines if "cuda:2" in line]
    assert len(lines) == 2, done.stderr


PLUGGED = """
import ctypes, torch
from pleat_test_support import emit
torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator("LIBRARY", "take", "give"))
w = torch.full((100, 100), 0.1, device="cuda", requires_grad=True)
for _ in range(3):
    ((w @ w).tanh() @ w).exp().sum().backward()
emit(grad=w.grad.cpu(), made=ctypes.c_int.in_dll(ctypes.CDLL("LIBRARY"), "made").value)
"""


def test_another_allocator_of_a_script_is_left_alone(same_as_stock, tmp_path):
    source, library = tmp_path / "mine.c", tmp_path / "mine.so"
    source.write_text(
        "#include <stddef.h>\nint cudaMalloc(void**, size_t);\nint cudaFree(void*);\nint made;\n"
        "void* take(ptrdiff_t n, int device, void* stream) { void* p = 0; ++made; cudaMalloc(&p, n); return p; }\n"
        "void give(void* p, ptrdiff_t n, int device, void* stream) { cudaFree(p); }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    outcome = same_as_stock(PLUGGED.replace("LIBRARY", str(library)), LOSSLESS, saves=False)
    assert outcome.values["made"] > 10


@pytest.mark.parametrize("conf", EXACT)
def test_a_program_on_libtorch_trains_as_on_the_cpu(conf, stand_ins, preload_library, simulation_environment):
    program, libraries = stand_ins / "libtorch_program", (stand_ins / "preload").read_text()

    def run(*words, **more):
        environment = simulation_environment | {"LD_PRELOAD": libraries} | more
        return subprocess.run([program, *words], env=environment, capture_output=True, text=True)

    host = run("cpu")
    assert (host.returncode, len(host.stdout.splitlines())) == (0, 18), host.stderr
    device = run("cuda", stand_ins / "sim-values.so", LD_PRELOAD=f"{preload_library}:{libraries}", PLEAT_CONF=f"{conf},verbose:1")
    assert (device.returncode, device.stdout) == (0, host.stdout), device.stderr
    assert "left to stock" not in with_kernels(device).stderr
    coded = re.search(r"^  cuda:0 .*, (\d+) tensors\)", device.stderr, re.MULTILINE)
    payloads = int(coded[1]) if coded else 0
    assert payloads == 0 if conf == OFF else payloads > 20, device.stderr
