"""The functions of the driver that Pleat looks up are all simulated, and behave like the driver's."""

import re

import pytest

pytest_plugins = ("simulated",)

# Calls each function at least once, with the expected answers.
CALLS = """
import ctypes, json, torch
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
driver = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments, gives=0):
    result = getattr(driver, name)(*arguments)
    assert result == gives, (name, result)

number, flags, context, other, identity = c_int(), c_uint(), c_void_p(), c_void_p(), c_uint64()
call("cuDeviceGet", byref(number), 1)
assert number.value == 1
call("cuDeviceGet", byref(number), 2, gives=101)  # INVALID_DEVICE
call("cuDeviceGetAttribute", byref(number), 75, 0)  # COMPUTE_CAPABILITY_MAJOR
assert number.value == 9

# Contexts: none is active before somebody uses the device.
call("cuDevicePrimaryCtxGetState", 1, byref(flags), byref(number))
assert number.value == 0
call("cuCtxGetCurrent", byref(context))
assert context.value is None
call("cuCtxGetDevice", byref(number), gives=201)  # INVALID_CONTEXT
call("cuEventCreate", byref(other), 2, gives=201)
x = torch.zeros(3000, dtype=torch.uint8, device="cuda:1")
torch.cuda.set_device(0)
call("cuDevicePrimaryCtxGetState", 1, byref(flags), byref(number))
assert number.value == 1
call("cuDevicePrimaryCtxRetain", byref(context), 1)
call("cuDevicePrimaryCtxRelease_v2", 1)
call("cuCtxPushCurrent_v2", context)
call("cuCtxGetDevice", byref(number))
assert number.value == 1
call("cuCtxGetCurrent", byref(other))
assert other.value == context.value
call("cuCtxGetId", context, byref(identity))
assert identity.value != 0

# Memory: on the device, pinned.
address, pinned, seen = c_uint64(x.data_ptr()), c_void_p(), c_uint64()
call("cuMemsetD8Async", address, 7, c_size_t(1000), None)
call("cuMemcpyAsync", c_uint64(x.data_ptr() + 1500), address, c_size_t(500), None)
call("cuMemHostAlloc", byref(pinned), c_size_t(100), 3)  # PORTABLE | DEVICEMAP
call("cuMemHostGetDevicePointer_v2", byref(seen), pinned, 0)
call("cuMemsetD8Async", seen, 9, c_size_t(10), None)
call("cuStreamWriteValue32_v2", None, c_uint64(seen.value + 16), 5, 0)  # DEFAULT
call("cuMemHostGetDevicePointer_v2", byref(identity), ctypes.create_string_buffer(8), 0, gives=1)  # INVALID_VALUE

call("cuMemAlloc_v2", byref(identity), c_size_t(5000))
call("cuMemsetD8Async", identity, 3, c_size_t(5000), None)
call("cuMemcpyAsync", c_uint64(x.data_ptr() + 2500), c_uint64(identity.value + 4000), c_size_t(500), None)
call("cuMemFree_v2", identity)
call("cuMemAlloc_v2", byref(identity), c_size_t(0), gives=1)

# Streams and events.
handle, event = c_void_p(), c_void_p()
call("cuStreamCreate", byref(handle), 1)  # NON_BLOCKING
call("cuStreamIsCapturing", handle, byref(number))
assert number.value == 0
made, memory = c_void_p(), c_uint64()
call("cuStreamCreate", byref(made), 1)  # NON_BLOCKING
assert made.value not in (None, handle.value)
call("cuMemAlloc_v2", byref(memory), c_size_t(4096))
call("cuMemsetD8Async", memory, 3, c_size_t(4096), made)
assert driver.cuStreamQuery(made) in (0, 600)
call("cuStreamSynchronize", made)
call("cuStreamQuery", made)
call("cuEventCreate", byref(event), 2)  # DISABLE_TIMING
call("cuEventQuery", event)  # complete: never recorded
call("cuStreamWaitEvent", handle, event, 0)
call("cuEventRecord", event, None)
late = driver.cuEventQuery(event)
assert late in (0, 600), late  # NOT_READY
assert ctypes.string_at(pinned, 10) in (bytes(10), bytes([9] * 10))
call("cuStreamWaitEvent", handle, event, 0)
call("cuEventSynchronize", event)
call("cuEventQuery", event)
assert ctypes.string_at(pinned, 10) == bytes([9] * 10)
call("cuStreamSynchronize", handle)
call("cuEventDestroy_v2", event)
call("cuMemFreeHost", pinned)

# Modules and launches: a kernel of Pleat's that has nothing to do.
module, function, batch = c_void_p(), c_void_p(), ctypes.create_string_buffer(16 + 46 * 88)
call("cuModuleLoadData", byref(module), b"image")
call("cuModuleGetFunction", byref(function), module, b"pleat_encode_bool")
call("cuModuleGetFunction", byref(other), byref(number), b"pleat_encode_bool", gives=400)  # INVALID_HANDLE
call("cuOccupancyMaxActiveBlocksPerMultiprocessor", byref(number), function, 256, c_size_t(0))
assert number.value == 8
parameters = (c_void_p * 1)(ctypes.cast(batch, c_void_p))
call("cuLaunchKernel", function, 1, 1, 1, 256, 1, 1, 0, None, parameters, None)
call("cuLaunchKernel", function, 0, 1, 1, 256, 1, 1, 0, None, parameters, None, gives=1)
call("cuCtxPopCurrent_v2", byref(other))
assert other.value == context.value
print(json.dumps([late, x.cpu().tolist()]))
"""


@pytest.fixture(scope="module")
def looked_up(repository):
    """Names of the functions in Pleat's table."""
    table = (repository / "allocator" / "cuda" / "driver.h").read_text()
    names = re.findall(r"ROW\(\w+,\s*(cu\w+),", table)
    assert len(names) > 20
    return names


def test_every_function_that_pleat_uses_is_simulated_and_works(simulate, looked_up):
    outcome = simulate(CALLS, devices=2, lag=200, seed=4)
    late, values = outcome.result
    assert late == 600
    assert values == [7] * 1000 + [0] * 500 + [7] * 500 + [0] * 500 + [3] * 500
    assert outcome.reports == []
    never_called = [name for name in looked_up if not outcome.facts["calls"].get(name, {}).get("other")]
    assert never_called == []


def test_functions_of_the_driver_are_found_by_name(simulate):
    outcome = simulate(
        """
        import ctypes, json, torch
        driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.13")
        found = {}
        for name in (b"cuMemAlloc", b"cuEventRecord", b"cuNoSuchFunction"):
            function, entry, result, status = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
            code = driver.cuGetProcAddress_v2(name, ctypes.byref(function), 13000, ctypes.c_uint64(0), ctypes.byref(result))
            runtime.cudaGetDriverEntryPoint(name, ctypes.byref(entry), ctypes.c_uint64(0), ctypes.byref(status))
            assert entry.value == function.value
            newest = getattr(driver, name.decode() + "_v2", None) or getattr(driver, name.decode(), None)
            same = newest is not None and ctypes.cast(newest, ctypes.c_void_p).value == function.value
            found[name.decode()] = [code, result.value, status.value, same]
        print(json.dumps(found))
        """
    )
    absent = [500, 1, 1, False]  # NOT_FOUND, SYMBOL_NOT_FOUND
    assert outcome.result == {"cuMemAlloc": [0, 0, 0, True], "cuEventRecord": [0, 0, 0, True], "cuNoSuchFunction": absent}


def test_a_block_can_be_shared_but_not_opened_by_its_own_process(simulate):
    outcome = simulate(
        """
        import json, torch
        storage = torch.ones(1 << 20, device="cuda").untyped_storage()
        device, handle, size, offset, counter, place, event, synchronises = storage._share_cuda_()
        try:
            torch.UntypedStorage._new_shared_cuda(device, handle, size, offset, counter, place, event, synchronises)
        except RuntimeError as error:
            print(json.dumps([size, str(error).splitlines()[0]]))
        """
    )
    assert outcome.result == [4 << 20, "CUDA error: invalid device context"]
