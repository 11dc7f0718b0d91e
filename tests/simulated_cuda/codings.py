"""Options of Pleat for tests of saved CUDA tensors, and the common head of their scripts. With `bits:4`, values equal those of
stock within noise."""

import pytest

OFF = "cuda:1,bits:off,min_bytes:0"
LOSSLESS = "cuda:1,bits:lossless,min_bytes:0"
LOSSY = "cuda:1,bits:4,min_bytes:0"
EXACT = [pytest.param(OFF, id="off"), pytest.param(LOSSLESS, id="lossless")]
CODINGS = [*EXACT, pytest.param(LOSSY, id="lossy")]
NOISE = 0.3  # of a gradient's norm

# The head of each script. `filled` allocates a block and writes it.
HEAD = """
import gc, threading, torch
from torch import nn
from torch.nn import functional
from pleat_test_support import activations, emit, noise, total, two_values

def filled(value=7.0, count=1 << 14, device="cuda"):
    return torch.full((count,), value, device=device)

# Of two values, so that what elementwise functions make of them is small without loss.
def made(*shape, seed=1, device="cuda"):  # by a layer
    return activations(two_values(*shape, seed=seed).to(device))

def weight(*shape, seed=1, device="cuda"):
    return nn.Parameter(two_values(*shape, seed=seed).to(device))

def host(*tensors):
    torch.cuda.synchronize()
    return [tensor.detach().cpu() for tensor in tensors]
"""


def titled(text):
    """The name and the source of a script; the name is a comment in its first line."""
    lines = text.strip("\n").splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip())
    return lines[0][margin:].removeprefix("# "), HEAD + "\n".join(line[margin:] for line in lines[1:]) + "\n"


def with_kernels(done):
    """The outcome of a run; skips if this build has no kernels."""
    if "no kernels for CUDA" in done.stderr:
        pytest.skip("this build of Pleat has no kernels for CUDA")
    return done
