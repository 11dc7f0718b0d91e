"""Pleat's kernels on the simulated device are host twins, and the oracle tracks their reads and writes.
Kernels of torch's compute true values in operators; a launch of any other kernel ends the process with its name."""

import pytest

pytest_plugins = ("simulated",)

# Queues pleat_encode_bool over a tensor, with the verdict in pinned memory, as compress/device/jobs.h lays the words out.
ENCODE = """
import ctypes, json, struct, numpy, torch
driver = ctypes.CDLL("libcuda.so.1")
numpy.random.seed(3)
bits = numpy.random.randint(0, 2, 1000, dtype=numpy.uint8)
source = torch.from_numpy(bits).cuda() + 0  # made on the default stream
target = torch.zeros(64 + 125, dtype=torch.uint8, device="cuda")
counters = torch.zeros(8, dtype=torch.int32, device="cuda")
verdict = torch.zeros(4, dtype=torch.int64, pin_memory=True)
module, function, image = ctypes.c_void_p(), ctypes.c_void_p(), b"image"
assert driver.cuModuleLoadData(ctypes.byref(module), image) == 0
assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"pleat_encode_bool") == 0
pointers = [t.data_ptr() for t in (source, target, verdict, counters)]
batch = struct.pack("<4I6Q8x2I", 1, 1, 0, 0, *pointers, 1000, 77, 0, 1)
parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.create_string_buffer(batch, 16 + 46 * 88), ctypes.c_void_p))
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
    assert at_once == [0, 0, 0, 0]
    assert later == [DONE, 64 + 125, 0, 0]
    assert same
    assert outcome.facts["launches"]["pleat_encode_bool"] == 1


def test_an_encode_that_does_not_wait_for_its_source_is_found(simulate):
    outcome = simulate(ENCODE.replace("ORDER", ""))
    assert outcome.code == 3
    assert any(report.startswith("read by pleat_encode_bool on stream") for report in outcome.reports)

# launch(kernel, stream, words of its one job): the job's pointers by tensor, its verdict and
# counters by name.
LAUNCH = """
import ctypes, json, struct, torch
driver = ctypes.CDLL("libcuda.so.1")
first, second = torch.cuda.Stream(), torch.cuda.Stream()
pad = lambda n: (n + 63) // 64 * 64
empty = lambda n: torch.zeros(n, dtype=torch.uint8, device="cuda")
counters = [empty(32) for _ in range(6)]
verdicts = torch.zeros(6, 4, dtype=torch.int64, pin_memory=True)
words = verdicts.view(torch.int32)
module, image, calls = ctypes.c_void_p(), b"image", 0
assert driver.cuModuleLoadData(ctypes.byref(module), image) == 0
def launch(name, stream, layout, *words):
    global calls
    function = ctypes.c_void_p()
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()) == 0
    own = {"VERDICT": verdicts[calls].data_ptr(), "COUNTERS": counters[calls].data_ptr()}
    calls += 1
    words = [own.get(w, w) if isinstance(w, str) else w.data_ptr() if isinstance(w, torch.Tensor) else w for w in words]
    batch = struct.pack("<4I" + layout, 1, 1, 0, 0, *words)
    parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.create_string_buffer(batch, 16 + 46 * 88), ctypes.c_void_p))
    assert driver.cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, ctypes.c_void_p(stream.cuda_stream), parameters, None) == 0
"""

# Rows from -12 to -8. Rows 5 and 6 share a group with a row that is a thousand times larger, row 8
# is nearly constant and row 20 zero; two elements of row 30 are between -1 and 0. Encoded at four
# bits with lines and elements next to the codes, decoded and restored.
ASIDES = LAUNCH + """
rows, length, most, near = 40, 96, 4, 100
elements = rows * length
groups = (elements + 255) // 256
host = torch.linspace(-12, -8, length).repeat(rows, 1)
host[7] *= 1000
host[8] = host[8] * 1e-3 - 10
host[20] = 0
host[30, -2:] = -0.25
source, target = host.cuda() + 0, torch.zeros(rows, length, device="cuda")
payload = empty(64 + pad(groups * 8) + groups * 128)
section = empty(64 + 2 * pad((rows + 31) // 32 * 4) + pad(most * 4) + pad(most * length * 4))
near_section = empty(pad(64 + near * 12))
torch.cuda.synchronize()
launch("pleat_encode_float32_4", first, "6Q2f2I", source, payload, "VERDICT", "COUNTERS", elements, 77,
       float("-inf"), float("inf"), 0, 0x3E000000)  # steps above 1/8 are counted
launch("pleat_keep_lines_float32", first, "7Q3I4B", source, payload, section, 0, "VERDICT", "COUNTERS", elements,
       0, length, most, 2, 4, 0, 0)
launch("pleat_keep_near_zero_float32", first, "7Q2I", source, near_section, "VERDICT", "COUNTERS", elements, 0, elements,
       0, near)
ORDER
launch("pleat_decode_float32_4", second, "7Q2I", payload, target, "VERDICT", "COUNTERS", elements, 0, payload.numel(), 0, 0)
launch("pleat_restore_lines_float32", second, "7Q3I4B", target, 0, section, 0, "VERDICT", "COUNTERS", elements,
       0, length, most, 2, 0, 0, 0)
launch("pleat_restore_near_zero_float32", second, "7Q2I", near_section, target, "VERDICT", "COUNTERS", near, 0, elements,
       0, near)
torch.cuda.synchronize()
back = target.cpu()
near_zero = host > -1
print(json.dumps({
    "outcomes": words[:, 0].tolist(), "kept": words[:, 7].tolist(), "too_wide": words[0, 4].item(),
    "near_zero": torch.equal(back[near_zero], host[near_zero]),
    "exact": [r for r in range(rows) if torch.equal(back[r], host[r])],
}))
"""

# Columns from -2 to 2, except column 5, which is nearly constant at 1.
COLUMNS = LAUNCH + """
rows, length, most = 64, 96, 4
elements = rows * length
host = torch.linspace(-2, 2, rows).repeat(length, 1).T.contiguous()
host[:, 5] = host[:, 5] * 1e-3 + 1
source, target = host.cuda() + 0, torch.zeros(rows, length, device="cuda")
payload = empty(64 + pad(elements // 256 * 8) + elements // 256 * 128)
section = empty(64 + 2 * 64 + pad(most * 4) + pad(most * rows * 4))
scratch = empty(pad(length * (8 + 8 + 16)))
torch.cuda.synchronize()
launch("pleat_encode_float32_4", first, "6Q2f2I", source, payload, "VERDICT", "COUNTERS", elements, 77, 0, 0, 0, 0)
job = ("7Q3I4B", source, payload, section, scratch, "VERDICT", "COUNTERS", elements, 0, length, most, 3, 4, 0, 0)
launch("pleat_look_at_columns_float32", first, *job)
ORDER
launch("pleat_keep_lines_float32", second, *job)
launch("pleat_restore_lines_float32", second, "7Q3I4B", target, 0, section, 0, "VERDICT", "COUNTERS", elements,
       0, length, most, 3, 0, 0, 0)
torch.cuda.synchronize()
changed = [c for c in range(length) if target.cpu()[:, c].any()]
print(json.dumps([words[:4, 0].tolist(), words[2, 7].item(), changed, torch.equal(target.cpu()[:, 5], host[:, 5])]))
"""

# Elements that noise moved to the other side of zero.
MOVES = LAUNCH + """
host = torch.linspace(-1, 1, 1000)
source, target = host.cuda() + 0, host.cuda() + 0.25
payload = empty(64 + 125)
torch.cuda.synchronize()
launch("pleat_encode_sides_float32", first, "6Q2f2I", source, payload, "VERDICT", "COUNTERS", 1000, 77, 0.0, float("inf"),
       0, 1 | 2 << 8)  # closed
ORDER
launch("pleat_move_to_sides_float32", second, "7Q2I", payload, target, "VERDICT", "COUNTERS", 1000, 0, 64 + 125, 0, 1)
torch.cuda.synchronize()
back = target.cpu()
same = torch.equal(back >= 0, host >= 0)
print(json.dumps([words[:2, 0].tolist(), same, torch.equal(back[host >= 0], (host + 0.25)[host >= 0])]))
"""


def test_elements_kept_next_to_the_codes_are_restored(simulate):
    outcome = simulate(ASIDES.replace("ORDER", "second.wait_stream(first)"), lag=100, seed=2)
    seen = outcome.result
    assert seen["outcomes"] == [DONE] * 6
    assert seen["kept"] == [0, 3, 98, 0, 0, 0]
    assert seen["too_wide"] == 15  # every group
    assert seen["near_zero"]
    assert seen["exact"] == [5, 6, 8, 20]
    assert outcome.reports == []


def test_a_restore_that_does_not_wait_for_its_section_is_found(simulate):
    outcome = simulate(ASIDES.replace("ORDER", ""))
    assert outcome.code == 3
    for kernel in ("pleat_decode_float32_4", "pleat_restore_lines_float32", "pleat_restore_near_zero_float32"):
        assert any(report.startswith(f"read by {kernel} on stream") for report in outcome.reports), kernel


def test_a_flat_column_is_restored(simulate):
    outcome = simulate(COLUMNS.replace("ORDER", "second.wait_stream(first)"), lag=100, seed=3)
    assert outcome.result == [[DONE, 0, DONE, DONE], 1, [5], True]
    assert outcome.reports == []


def test_columns_that_are_kept_before_their_examination_are_found(simulate):
    outcome = simulate(COLUMNS.replace("ORDER", ""))
    assert outcome.code == 3
    assert any("by pleat_keep_lines_float32 on stream" in report for report in outcome.reports)


def test_elements_return_to_their_side(simulate):
    outcome = simulate(MOVES.replace("ORDER", "second.wait_stream(first)"), lag=100, seed=4)
    assert outcome.result == [[DONE, DONE], True, True]
    assert outcome.reports == []


def test_a_move_that_does_not_wait_for_its_sides_is_found(simulate):
    outcome = simulate(MOVES.replace("ORDER", ""))
    assert outcome.code == 3
    assert any(report.startswith("read by pleat_move_to_sides_float32 on stream") for report in outcome.reports)

OF_A_MODULE = """
import ctypes, torch
torch.empty(1, device="cuda")
driver = ctypes.CDLL("libcuda.so.1")
module, function = ctypes.c_void_p(), ctypes.c_void_p()
assert driver.cuModuleLoadData(ctypes.byref(module), b"image") == 0
assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"NAME") == 0
driver.cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, None, None, None)
"""
# Like the code that nvcc writes into a library, but outside of torch's libraries.
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
def test_an_unknown_kernel_ends_the_process_with_its_name(simulate, script, name, shadow):
    outcome = simulate(script.replace("NAME", name), shadow=shadow)
    assert outcome.code == -6
    assert outcome.stderr.endswith(f"SIMULATED CUDA: the kernel has no twin: {name}\n")


def test_torchs_kernels_outside_operators_with_true_values_end_the_process(simulate):
    """This operator is not one of aten's, and only those have replaced kernels."""
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


def test_unordered_writes_to_a_verdicts_word_are_found(simulate):
    """The second encode, on another stream, gets the word before the first one's verdict can have been seen."""
    again = ENCODE.replace("at_once = verdict", "other = torch.cuda.Stream()\nassert LAUNCH\nat_once = verdict")
    again = again.replace("ORDER", "torch.cuda.synchronize()")
    launch = next(line for line in again.splitlines() if "cuLaunchKernel(" in line).removeprefix("assert ")
    outcome = simulate(again.replace("LAUNCH", launch.replace("stream.cuda_stream", "other.cuda_stream")), lag=100000, seed=2)
    assert outcome.code == 3
    assert any(report.startswith("write by pleat_encode_bool") for report in outcome.reports)
