"""Each kernel of the image is launched by product code, or the issue that gives it a caller is named here."""

import re
import subprocess

import pytest

pytest_plugins = ("simulated",)

# By the issue that will call them.
WITHOUT_CALLER = {
    51: r"(en|de)code_framed_.*",
    54: r"(en|de)code_(transformed|scaled)_.*",
    57: r"(survey|encode_in_place)_.*",
}

# Steps in each type: saved values of every kind that has a form.
SWEEP = """
import sys, torch
from torch import nn
from torch.nn import functional
from pleat_test_support import noise

def saved(dtype, steps):
    layers = nn.Sequential(nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 96), nn.ReLU()).cuda().to(dtype)
    norm = nn.BatchNorm1d(96).cuda()
    table = noise(7, 96, seed=2).to(dtype).cuda().requires_grad_()
    two = torch.where(noise(320, 96, seed=3) > 0, 0.25, -0.2).to(dtype).cuda()
    x = noise(320, 96, seed=1).to(dtype).cuda()
    x[:, 5] = x[:, 5] * 1e-3 + 1
    x[7] = 0.5
    index = torch.arange(320, device="cuda") % 7
    logits = noise(320, 96, seed=4).to(dtype).cuda()
    scale = torch.full((), 2.0, dtype=dtype, device="cuda", requires_grad=True)
    for step in range(steps):
        h = layers(x)
        for f in (functional.elu, functional.leaky_relu, functional.hardswish, functional.silu, functional.hardtanh, torch.abs):
            h = h + f(norm(h * 2 - 1))
        h = torch.where(h > 0, h, h * 2) + functional.dropout(h, 0.5) + (h.abs() + 0.1).log() + h.square().add(0.01).sqrt()
        h = h * (two * 1) + functional.embedding(index.int(), table) + h[index + 0]
        loss = functional.nll_loss(functional.log_softmax(logits * scale, 1), index) + h.float().square().mean()
        loss.backward()
    torch.cuda.synchronize()

torch.manual_seed(0)
for name in ("float32", "bfloat16", "float16"):
    saved(getattr(torch, name), int(sys.argv[1]))
"""
CODINGS = [(bits, 4) for bits in ("lossless", "1", "2", "3", "4", "6", "8")] + [("lossless,sensitivity:on,refresh:10", 14)]


@pytest.fixture(scope="module")
def kernels(repository):
    """Names of all kernels of the image."""
    source = repository / "compress" / "cuda" / "kernels.cu"
    command = ["c++", "-E", "-P", "-x", "c++", "-std=c++20", "-I", repository, source]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\bpleat_(\w+)\s*\(\s*const __grid_constant__", text))


def launches(outcome):
    assert outcome.code == 0, outcome.stderr
    return {name.removeprefix("pleat_"): count for name, count in outcome.facts["launches"].items() if name.startswith("pleat_")}


# The device codes one block, and so runs its self-test first.
FIRST_USE = """
import torch
torch.ones(1 << 16, device="cuda", requires_grad=True).exp().sum().backward()
torch.cuda.synchronize()
"""


def test_each_kernel_is_launched_or_waits_for_a_named_issue(kernels, under_pleat):
    own = launches(under_pleat(FIRST_USE, conf="cuda:1,bits:4,min_bytes:0,rule:assumed", shadow=True))
    launched = set()
    for bits, steps in CODINGS:
        outcome = under_pleat(SWEEP, str(steps), conf=f"cuda:1,bits:{bits},min_bytes:0,rule:assumed", shadow=True)
        launched |= {name for name, count in launches(outcome).items() if count > own.get(name, 0)}
    waiting = {name for name in kernels if any(re.fullmatch(names, name) for names in WITHOUT_CALLER.values())}
    assert own and len(kernels) > 100 and launched <= kernels
    assert sorted(kernels - waiting - launched) == []
    assert sorted(waiting & launched) == []
