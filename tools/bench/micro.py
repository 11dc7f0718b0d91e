#!/usr/bin/env python3
"""Times two tiny things in this process: an allocation with its free, and a saved tensor.

Plain PyTorch, one thread; overhead.py runs it once stock and once under Pleat, and the difference is what Pleat
costs. Prints JSON: medians in nanoseconds.
"""

from __future__ import annotations

import json
import statistics
import time

import torch

TENSORS = 64
BYTES = 256 << 10


class Saves(torch.autograd.Function):
    """Saves all its inputs, computes nothing of their size, and reads them again in backward."""

    @staticmethod
    def forward(ctx, anchor, *tensors):
        ctx.save_for_backward(*tensors)
        ctx.count = len(tensors)
        return anchor.clone()

    @staticmethod
    def backward(ctx, gradient):
        for tensor in ctx.saved_tensors:
            tensor.data_ptr()
        return (gradient,) + (None,) * ctx.count


class Passes(torch.autograd.Function):
    """The same inputs, none saved: passing them costs something too."""

    @staticmethod
    def forward(ctx, anchor, *tensors):
        ctx.count = len(tensors)
        return anchor.clone()

    @staticmethod
    def backward(ctx, gradient):
        return (gradient,) + (None,) * ctx.count


def allocation_ns(count: int, rounds: int = 15, per_round: int = 500) -> float:
    """One torch.empty of `count` bytes and its free; the memory is not touched."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(per_round):
            torch.empty(count, dtype=torch.uint8)
        times.append((time.perf_counter_ns() - start) / per_round)
    return statistics.median(times)


def saved_tensor_ns(rounds: int = 60) -> float:
    """Pack and unpack of one of TENSORS live tensors, the empty round trip through autograd taken off."""
    parameter = torch.ones(BYTES // 4, requires_grad=True)
    anchor = torch.ones(1, requires_grad=True)
    tensors = [parameter * (i + 1) for i in range(TENSORS)]

    def round_trip_ns(function) -> int:
        start = time.perf_counter_ns()
        # Only towards the anchor: the graph of `tensors` stays whole.
        torch.autograd.grad(function.apply(anchor, *tensors), anchor)
        return time.perf_counter_ns() - start

    for _ in range(5):
        round_trip_ns(Saves), round_trip_ns(Passes)
    full = statistics.median(round_trip_ns(Saves) for _ in range(rounds))
    empty = statistics.median(round_trip_ns(Passes) for _ in range(rounds))
    return (full - empty) / TENSORS


def main() -> None:
    torch.set_num_threads(1)
    result = {
        "allocation_ns": {str(size): allocation_ns(size) for size in (1 << 10, 256 << 10, 4 << 20, 64 << 20)},
        "saved_tensor_ns": saved_tensor_ns(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
