"""Pleat's kernels on the simulated device are their twins on the host, and the oracle knows what they read and write.
Kernels of torch's give true values in operators; whatever else is launched ends the process with its name."""

import pytest

pytest_plugins = ("simulated",)

# Queues pleat_encode_bool over a tensor, with the verdict in pinned memory, as compress/cuda/jobs.h lays the words out.
ENCODE = """
import ctypes, json, struct, numpy, torch
driver = ctypes.CDLL("libcuda.so.1")
numpy.random.seed(3)
bits = numpy.random.randint(0, 2, 1000, dtype=numpy.uint8)
source = torch.from_numpy(bits).cuda() + 0  # made on the default stream
target = torch.zeros(64 + 125, dtype=torch.uint8, device="cuda")
counters = torch.zeros(8, dtype=torch.int32, device="cuda")
verdict = torch.zeros(2, dtype=torch.int64, pin_memory=True)
module, function, image = ctypes.c_void_p(), ctypes.c_void_p(), b"image"
assert driver.cuModuleLoadData(ctypes.byref(module), image) == 0
assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"pleat_encode_bool") == 0
pointers = [t.data_ptr() for t in (source, target, verdict, counters)]
batch = struct.pack("<4I6Q8x2I", 1, 1, 0, 0, *pointers, 1000, 77, 0, 1)
parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.create_string_buffer(batch, 16 + 62 * 64), ctypes.c_void_p))
stream = torch.cuda.Stream()
ORDER
assert driver.cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, ctypes.c_void_p(stream.cuda_stream), parameters, None) == 0
at_once = verdict.tolist()
torch.cuda.synchronize()
expected = numpy.packbits(bits, bitorder="little")
print(json.dumps([at_once, verdict.tolist(), bool((target[64:].cpu().numpy() == expected).all())]))
"""
DONE = 1  # Outcome::kDone, in the low word


def test_an_encode_writes_its_payload_and_its_verdict_comes_late(simulate):
    outcome = simulate(ENCODE.replace("ORDER", "torch.cuda.synchronize()"), lag=1000, seed=1)
    at_once, later, same = outcome.result
    assert at_once == [0, 0]
    assert later == [DONE, 64 + 125]
    assert same
    assert outcome.facts["launches"]["pleat_encode_bool"] == 1


def test_an_encode_that_does_not_wait_for_its_source_is_found(simulate):
    outcome = simulate(ENCODE.replace("ORDER", ""))
    assert outcome.code == 3
    assert any(report.startswith("read by pleat_encode_bool on stream") for report in outcome.reports)


OF_A_MODULE = """
import ctypes, torch
torch.empty(1, device="cuda")
driver = ctypes.CDLL("libcuda.so.1")
module, function = ctypes.c_void_p(), ctypes.c_void_p()
assert driver.cuModuleLoadData(ctypes.byref(module), b"image") == 0
assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"NAME") == 0
driver.cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, None, None, None)
"""
# As the code that nvcc writes into a library does it, but from no library of torch's.
OF_A_LIBRARY = """
import ctypes, torch
torch.empty(1, device="cuda")
class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]
runtime = ctypes.CDLL("libcudart.so.13")
register_image = runtime["__cudaRegisterFatBinary"]
register_image.restype = ctypes.c_void_p
image, function = ctypes.c_void_p(register_image(None)), ctypes.create_string_buffer(1)
runtime["__cudaRegisterFunction"](image, function, None, b"NAME", -1, None, None, None, None, None)
runtime.cudaLaunchKernel(function, Dim3(1, 1, 1), Dim3(256, 1, 1), None, ctypes.c_size_t(0), None)
"""


@pytest.mark.parametrize(
    "script, name",
    [(OF_A_MODULE, "pleat_no_such_kernel"), (OF_A_MODULE, "triton_poi_fused_0"), (OF_A_LIBRARY, "somebodys_kernel")],
)
@pytest.mark.parametrize("shadow", [True, False])
def test_a_kernel_that_nobody_knows_ends_the_process_with_its_name(simulate, script, name, shadow):
    outcome = simulate(script.replace("NAME", name), shadow=shadow)
    assert outcome.code == -6
    assert outcome.stderr.endswith(f"SIMULATED CUDA: the kernel has no twin: {name}\n")


def test_torchs_kernels_outside_operators_with_true_values_end_the_process(simulate):
    """This operator is none of aten's, whose kernels alone are replaced."""
    script = """
        import torch
        torch.ops.quantization._FloatToBfloat16Quantized(torch.ones(4, 8, device="cuda"))
        """
    outcome = simulate(script)
    assert outcome.code == -6
    assert "the kernel runs outside an operator with true values" in outcome.stderr
    assert simulate(script, shadow=False).code == 0


def test_operators_whose_kernels_torch_compiles_give_true_values(simulate):
    outcome = simulate(
        """
        import json, torch
        x = torch.tensor([3 + 4j, -5 + 12j], device="cuda")
        n = torch.tensor([12, 18], device="cuda")
        print(json.dumps([x.abs().tolist(), torch.gcd(n, n + 6).tolist()]))
        """
    )
    assert outcome.result == [[5.0, 13.0], [6, 6]]
