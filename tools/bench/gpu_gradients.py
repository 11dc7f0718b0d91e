#!/usr/bin/env python3
"""Compares the formulas that Pleat has write over their gradient with themselves writing elsewhere, bit for bit, on a GPU.

Pleat lets the gradients of some activations be written over the gradients that they are made of (the option
reuse_gradients). That is right where a kernel reads what it needs of an element before it writes there. This says so
for each formula, over types, layouts, alignments and values: normal ones, NaN, Inf and denormals, and random bits.

Exit code 0: no bit differs; 1: some do; 77: no GPU. Needs nothing but torch."""

import argparse
import collections
import math
import sys

import torch

from harness import run_main, write_json

ATEN = torch.ops.aten

TYPES = ("float32", "bfloat16", "float16", "float64")
CONTENTS = ("normal", "wild", "bits")
# Shapes with a layout. "odd": the data begins one element behind what is aligned.
POINTWISE = (
    ((1,), "plain"), ((7,), "plain"), ((1 << 20,), "plain"), ((1000003,), "odd"), ((512, 1024), "plain"),
    ((513, 129), "transposed"), ((4, 64, 28, 28), "channels_last"), ((3, 5, 7, 11), "transposed"), ((1 << 24,), "plain"),
)  # fmt: skip
ROWS = (
    ((5, 1), "plain"), ((64, 7), "plain"), ((512, 33), "odd"), ((512, 128), "plain"), ((256, 1000), "plain"), ((128, 1024), "odd"),
    ((64, 1025), "plain"), ((64, 2048), "plain"), ((33, 4097), "odd"), ((16, 10007), "plain"), ((8, 50257), "plain"),
    ((4, 131072), "plain"), ((70000, 16), "plain"),
)  # fmt: skip


def formulas():
    """By name: the formula, of a gradient and a saved tensor, and the same with a target."""

    def with_target(op, *args, **options):
        return lambda g, x: op(g, x, *args, **options), lambda g, x, out: op.grad_input(g, x, *args, **options, grad_input=out)

    def scaled_elu(is_result):
        def elu(g, x):
            return ATEN.elu_backward(g, 1.2, 1.0, 1.0, is_result, x)

        return elu, lambda g, x, out: ATEN.elu_backward.grad_input(g, 1.2, 1.0, 1.0, is_result, x, grad_input=out)

    def with_factor(op, factor):
        return lambda g, x: op(g, factor(x)), lambda g, x, out: op.out(g, factor(x), out=out)

    factors = {
        "same shape": lambda x: x,
        "number": lambda x: torch.tensor(0.37, dtype=torch.float64),
        "of no dimension": lambda x: x.reshape(-1)[-1],
        "last dimension": lambda x: x[(0,) * (x.dim() - 1)],
    }
    products = {f"{op}, {name}": with_factor(getattr(ATEN, op), factor) for op in ("mul", "div") for name, factor in factors.items()}
    return products | {
        "gelu": with_target(ATEN.gelu_backward, approximate="none"),
        "gelu tanh": with_target(ATEN.gelu_backward, approximate="tanh"),
        "silu": with_target(ATEN.silu_backward),
        "threshold": with_target(ATEN.threshold_backward, 0),
        "sigmoid": with_target(ATEN.sigmoid_backward),
        "tanh": with_target(ATEN.tanh_backward),
        "leaky_relu": with_target(ATEN.leaky_relu_backward, 0.01, False),
        "leaky_relu of result": with_target(ATEN.leaky_relu_backward, 0.01, True),
        "hardtanh": with_target(ATEN.hardtanh_backward, -1, 1),
        "elu": scaled_elu(False),
        "elu of result": scaled_elu(True),
    }


def formulas_of_rows():
    def softmax(g, x):
        return ATEN._softmax_backward_data(g, x, -1, g.dtype)

    def log_softmax(g, x):
        return ATEN._log_softmax_backward_data(g, x, -1, g.dtype)

    return {
        "softmax": (softmax, lambda g, x, out: ATEN._softmax_backward_data.out(g, x, -1, g.dtype, grad_input=out)),
        "log_softmax": (log_softmax, lambda g, x, out: ATEN._log_softmax_backward_data.out(g, x, -1, g.dtype, out=out)),
    }


def whole_numbers(dtype):
    return {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]


def values(count, dtype, content, seed):
    rng = torch.Generator(device="cuda").manual_seed(seed)
    if content == "bits":
        high, low = (torch.randint(-(2**31), 2**31 - 1, (count,), device="cuda", generator=rng) for _ in range(2))
        return ((high << 31) ^ low).to(whole_numbers(dtype)).view(dtype)
    x = torch.randn(count, device="cuda", generator=rng, dtype=torch.float64)
    if content == "wild":
        info = torch.finfo(dtype)
        odd = [math.nan, math.inf, -math.inf, 0.0, -0.0, info.tiny, -info.tiny, info.tiny / 4, info.max, -info.max, info.eps]
        of = torch.randint(0, len(odd), (count,), device="cuda", generator=rng)
        chosen = torch.rand(count, device="cuda", generator=rng) < 0.4
        x = torch.where(chosen, torch.tensor(odd, device="cuda", dtype=torch.float64)[of], x)
    return x.to(dtype)


def place(flat, shape, layout):
    if layout == "odd":
        buffer = flat.new_empty(len(flat) + 3)
        buffer[1 : len(flat) + 1] = flat
        return buffer[1 : len(flat) + 1].view(shape)
    if layout == "transposed":
        return flat.clone().view(shape[::-1]).permute(*reversed(range(len(shape))))
    x = flat.clone().view(shape)
    return x.to(memory_format=torch.channels_last) if layout == "channels_last" else x


def compare(formula, shape, layout, dtype, content, seed):
    """How many elements of so many have other bits; None where the formula does not take such tensors."""
    apart, over = formula
    count = math.prod(shape)
    grad, saved = (place(values(count, dtype, content, seed + i), shape, layout) for i in range(2))
    try:
        wanted = apart(grad, saved)
    except (RuntimeError, NotImplementedError):
        return None
    target = grad.detach()  # another tensor on its memory, as Pleat makes one
    over(grad, saved, target)
    integers = whole_numbers(dtype)
    return (wanted.contiguous().view(integers) != target.contiguous().view(integers)).sum().item(), count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: not compared", file=sys.stderr)
        return 77
    work = [(name, f, s, layout) for name, f in formulas().items() for s, layout in POINTWISE]
    work += [(name, f, s, layout) for name, f in formulas_of_rows().items() for s, layout in ROWS]
    # A formula that is not the one that wrote: what finds no difference there finds none anywhere.
    gelu, tanh = formulas()["gelu"], formulas()["gelu tanh"]
    control = compare((gelu[0], tanh[1]), (1 << 20,), "plain", torch.float32, "normal", 1)
    found = collections.defaultdict(lambda: {"different": 0, "elements": 0})
    for seed, (name, formula, shape, layout) in enumerate(work):
        for type_name in TYPES:
            for content in CONTENTS:
                outcome = compare(formula, shape, layout, getattr(torch, type_name), content, 2 * seed)
                if outcome is not None:
                    found[name]["different"] += outcome[0]
                    found[name]["elements"] += outcome[1]
    for name, sums in found.items():
        print(f"{name:24} {sums['different']:>10,} of {sums['elements']:>14,} elements differ")
    all_names = formulas().keys() | formulas_of_rows().keys()
    sound = control[0] > 0 and found.keys() == all_names and not any(sums["different"] for sums in found.values())
    write_json(options.json, {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "formulas": found})
    print("all the same" if sound else "NOT the same" if control[0] else "the comparison finds nothing")
    return 0 if sound else 1


if __name__ == "__main__":
    run_main(main)
