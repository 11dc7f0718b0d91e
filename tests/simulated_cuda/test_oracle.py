"""The oracle finds unordered accesses, whatever the values of the run, and stays silent if all are ordered."""

import re

import pytest

pytest_plugins = ("simulated",)

# `x` is made on one stream and read on another; then its block can be reused.
READ_ELSEWHERE = """
import torch
side = torch.cuda.Stream()
x = torch.randn(1 << 16, device="cuda")
ORDER_BEFORE
with torch.cuda.stream(side):
    y = x * 2
RECORD
del x
ORDER_AFTER
z = torch.zeros(1 << 16, device="cuda")  # in the block of x, if that is free
torch.cuda.synchronize()
assert y.numel() == z.numel()
"""
WAIT = "side.wait_stream(torch.cuda.current_stream())"


def read_elsewhere(before="", record="", after=""):
    text = READ_ELSEWHERE.replace("ORDER_BEFORE", before).replace("RECORD", record)
    return text.replace("ORDER_AFTER", after)


@pytest.mark.smoke
@pytest.mark.parametrize("seed", range(3))
def test_a_read_before_the_write_is_found_at_every_seed(simulate, seed):
    outcome = simulate(read_elsewhere(after="torch.cuda.synchronize()"), lag=20, seed=seed)
    assert outcome.code == 3
    assert len(outcome.reports) == 1
    assert "read by aten::mul" in outcome.reports[0] and "write by aten::" in outcome.reports[0]
    assert outcome.reports[0].count("on stream ") == 2


@pytest.mark.parametrize("seed", range(3))
def test_memory_reused_too_early_is_found_at_every_seed(simulate, seed):
    outcome = simulate(read_elsewhere(before=WAIT), lag=20, seed=seed)
    assert outcome.code == 3
    assert any("write by" in report and "after read by aten::mul" in report for report in outcome.reports)


@pytest.mark.parametrize(
    "after",
    [
        {"after": "torch.cuda.current_stream().wait_stream(side)"},
        {"record": "x.record_stream(side)"},
        {"after": "torch.cuda.synchronize()"},
        {"after": "side.synchronize()"},
    ],
    ids=["waits", "recorded", "device", "stream"],
)
def test_the_oracle_is_silent_where_streams_are_in_order(simulate, after):
    outcome = simulate(read_elsewhere(before=WAIT, **after), lag=20, seed=1)
    assert outcome.code == 0, outcome.stderr
    assert outcome.reports == []


def test_a_backward_over_a_side_stream_is_in_order(simulate):
    outcome = simulate(
        """
        import torch
        side = torch.cuda.Stream()
        w = torch.randn(64, 64, device="cuda", requires_grad=True)
        for _ in range(3):
            x = torch.randn(32, 64, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = (x @ w).relu()
            torch.cuda.current_stream().wait_stream(side)
            x.record_stream(side)
            y.sum().backward()
        torch.cuda.synchronize()
        """,
        lag=20,
    )
    assert outcome.code == 0, outcome.stderr


def test_two_streams_can_write_parts_of_a_tensor(simulate):
    """Columns share no bytes, although their ranges overlap."""
    outcome = simulate(
        """
        import torch
        a, b = torch.cuda.Stream(), torch.cuda.Stream()
        x = torch.zeros(64, 64, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(a):
            x[:, :32].fill_(1)
        with torch.cuda.stream(b):
            x[:, 32:].fill_(2)
        torch.cuda.synchronize()
        assert x.sum().item() == 64 * 32 * 3
        """
    )
    assert outcome.code == 0, outcome.stderr


def test_device_writes_to_pinned_memory_become_visible_late(simulate):
    """Before the event is complete, the host must not rely on the value; afterwards it can."""
    outcome = simulate(
        """
        import json, torch
        pinned = torch.zeros(1, pin_memory=True)
        late = 0
        for i in range(1, 31):
            pinned.copy_(torch.full((1,), float(i), device="cuda"), non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            late += pinned.item() != i
            while not event.query():
                pass
            assert pinned.item() == i
        print(json.dumps(late))
        """,
        lag=50,
        seed=2,
    )
    assert outcome.result > 0


def test_without_lag_no_result_is_late(simulate):
    outcome = simulate(
        """
        import json, torch
        torch.empty(1, device="cuda")
        event = torch.cuda.Event()
        event.record()
        print(json.dumps(event.query()))
        """
    )
    assert outcome.result is True


def test_a_freed_block_must_not_be_used(simulate):
    outcome = simulate(
        """
        import torch
        x = torch.ones(1 << 16, device="cuda")
        dead = torch._C._construct_storage_from_data_pointer(x.data_ptr(), torch.device("cuda", 0), 1 << 18)
        y = torch.empty(0, device="cuda").set_(dead, 0, (1 << 16,))
        y.add_(1)
        del x
        y.add_(1)
        """
    )
    assert outcome.code == 3
    assert outcome.reports == ["aten::add_.Tensor uses a block that was taken back"]


def test_memory_freed_twice_is_reported(simulate):
    outcome = simulate(
        """
        import ctypes, torch
        torch.empty(1, device="cuda")
        driver = ctypes.CDLL("libcuda.so.1")
        pointer = ctypes.c_uint64()
        assert driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1000)) == 0
        assert driver.cuMemFree_v2(pointer) == 0
        assert driver.cuMemFree_v2(pointer) == 1  # CUDA_ERROR_INVALID_VALUE
        """
    )
    assert outcome.code == 3
    assert outcome.reports == ["cuMemFree of memory that is not allocated"]


def test_memory_unmapped_under_queued_work_is_reported(simulate):
    script = """
        import ctypes, torch
        torch.empty(1, device="cuda")
        driver = ctypes.CDLL("libcuda.so.1")
        size, pointer, handle = ctypes.c_size_t(2 << 20), ctypes.c_uint64(), ctypes.c_uint64()
        class Properties(ctypes.Structure):  # CUmemAllocationProp: pinned memory of device 0
            _fields_ = [("type", ctypes.c_int), ("handle", ctypes.c_int), ("place", ctypes.c_int), ("rest", ctypes.c_int * 16)]
        assert driver.cuMemAddressReserve(ctypes.byref(pointer), size, 0, 0, 0) == 0
        assert driver.cuMemCreate(ctypes.byref(handle), size, ctypes.byref(Properties(1, 0, 1)), 0) == 0
        assert driver.cuMemMap(pointer, size, 0, handle, 0) == 0
        assert driver.cuMemsetD8Async(pointer, 1, size, None) == 0
        WAIT
        assert driver.cuMemUnmap(pointer, size) == 0
    """
    outcome = simulate(script.replace("WAIT", ""))
    assert outcome.code == 3
    assert outcome.reports == ["cuMemUnmap does not happen after write by cuMemsetD8Async on stream 0"]
    assert simulate(script.replace("WAIT", "assert driver.cuCtxSynchronize() == 0")).code == 0


PINNED_TWICE = """
import torch
first, second = torch.cuda.Stream(), torch.cuda.Stream()
x = torch.ones(1000, device="cuda")
pinned = torch.zeros(1000, pin_memory=True)
torch.cuda.synchronize()
with torch.cuda.stream(first):
    pinned.copy_(x, non_blocking=True)
ORDER
with torch.cuda.stream(second):
    pinned.copy_(x, non_blocking=True)
torch.cuda.synchronize()
"""


@pytest.mark.parametrize("order, reports", [("", 1), ("second.wait_stream(first)", 0), ("first.synchronize()", 0)])
@pytest.mark.parametrize("seed", range(3))
def test_two_unordered_writes_to_pinned_memory_are_found_while_pending(simulate, order, reports, seed):
    outcome = simulate(PINNED_TWICE.replace("ORDER", order), lag=100000, seed=seed)
    write = r"write by cudaMemcpyAsync on stream \d+"
    assert len(outcome.reports) == reports
    assert all(re.fullmatch(f"{write} does not happen after {write}", report) for report in outcome.reports)
