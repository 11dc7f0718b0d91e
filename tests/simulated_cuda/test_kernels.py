"""Pleat's kernels on the simulated device are their twins on the host, and the oracle knows what they read and write."""

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
verdict = torch.zeros(4, dtype=torch.int64, pin_memory=True)
module, function, image = ctypes.c_void_p(), ctypes.c_void_p(), b"image"
assert driver.cuModuleLoadData(ctypes.byref(module), image) == 0
assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"pleat_no_such_kernel") == 500  # NOT_FOUND
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
    assert at_once == [0, 0, 0, 0]
    assert later == [DONE, 64 + 125, 0, 0]
    assert same
    assert outcome.facts["launches"]["pleat_encode_bool"] == 1


def test_an_encode_that_does_not_wait_for_its_source_is_found(simulate):
    outcome = simulate(ENCODE.replace("ORDER", ""))
    assert outcome.code == 3
    assert any(report.startswith("read by pleat_encode_bool on stream") for report in outcome.reports)
