"""Each kernel of the image is launched, and each form of a payload written, by product code, or the issue that gives it a
caller is named here."""

import json
import re
import subprocess

import pytest

pytest_plugins = ("simulated",)

# By the issue that will call them.
WITHOUT_CALLER = {
    57: r"(survey|encode_in_place)_.*",
}
# Forms are the kinds and flags of compress/format.h. In place (57) a payload has the form that it has elsewhere. Only tests and
# benches force raw, and no span of the sweep is raw in the payload of its block.
WITHOUT_WRITER = {None: {"ForceRaw", "Raw"}}

# Steps in each type: saved values of every kind that has a form. Prints the kinds and flags of the payloads that lie in this
# process's memory, that of simulated devices included.
SWEEP = r"""
import json, re, struct, sys, numpy, torch
from torch import nn
from torch.nn import functional
from pleat_test_support import noise, total

def touched(begin, end, pages):
    pages.seek(begin // 4096 * 8)
    present = numpy.frombuffer(pages.read((end - begin) // 4096 * 8), numpy.uint64) >> 62 != 0
    edges = numpy.flatnonzero(numpy.diff(present, prepend=False, append=False)).tolist()
    return [(begin + first * 4096, begin + last * 4096) for first, last in zip(edges[::2], edges[1::2])]

def forms():
    head = re.compile(re.escape(struct.pack("<IH", 0x31544C50, 4)) + rb"([\0-\5])[\0-\6][\0-\x08](.)\0\0", re.DOTALL)
    kinds, flags = set(), 0
    with open("/proc/self/mem", "rb", 0) as memory, open("/proc/self/pagemap", "rb", 0) as pages:
        for line in open("/proc/self/maps").readlines():
            place, rights = line.split()[:2]
            if not rights.startswith("rw") or "[v" in line:
                continue
            for begin, end in touched(*(int(address, 16) for address in place.split("-")), pages):
                memory.seek(begin)
                for found in head.finditer(memory.read(end - begin)):
                    if found.start() % 64 == 0:
                        kinds.add(found[1][0])
                        flags |= found[2][0]
    return {"kinds": sorted(kinds), "flags": flags}

def means(x, scale):
    parts, constant = x + 0, torch.full_like(x, 3)
    return (parts[:300] * scale).mean() + (parts[310:311, :4] * scale).mean() + (constant * scale).mean()

def saved(dtype, device, steps):
    layers = nn.Sequential(nn.Linear(96, 96), nn.GELU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 96)).to(device, dtype)
    norm, apart = nn.BatchNorm1d(96).to(device), nn.Linear(96, 96).to(device, dtype)
    table = nn.Parameter(noise(7, 96, seed=2).to(device, dtype))
    two = torch.where(noise(320, 96, seed=3) > 0, 0.25, -0.2).to(device, dtype)
    x = noise(320, 96, seed=1).to(device, dtype)
    x[:, 5] = x[:, 5] * 1e-3 + 1
    x[7] = 0.5
    index = torch.arange(320, device=device) % 7
    logits = noise(320, 96, seed=4).to(device, dtype)
    scale = nn.Parameter(torch.full((), 2.0, dtype=dtype, device=device))
    signs, outer = noise(320, 512, seed=5).to(device, dtype), nn.Linear(512, 8).to(device, dtype)
    tails = signs * noise(320, 512, seed=6).to(device, dtype)
    for step in range(steps):
        h = layers(x)
        for f in (functional.elu, functional.leaky_relu, functional.hardswish, functional.silu, functional.hardtanh, torch.abs):
            h = h + f(norm(h * 2 - 1))
        h = torch.where(h > 0, h, h * 2) + functional.dropout(h, 0.5)
        h = h * (two * 1) + functional.embedding(index.int(), table) + h[index + 0]
        p = apart(x)
        ends = outer(tails * scale) + outer(functional.dropout(signs * scale, 0.1))
        poles = (p.abs() + 0.1).log() + p.square().add(0.01).sqrt()
        loss = functional.nll_loss(functional.log_softmax(logits * scale, 1), index) + total(h.float()) + means(x, scale)
        loss = loss + poles.float().square().mean() + total(ends.float())
        seen = forms() if step == steps - 1 else None
        loss.backward()
    return seen

torch.manual_seed(0)
device, steps = sys.argv[1], int(sys.argv[2])
seen = [saved(getattr(torch, name), device, steps) for name in ("float32", "bfloat16", "float16")]
if device == "cuda":
    torch.cuda.synchronize()
print(json.dumps({"kinds": sorted({kind for one in seen for kind in one["kinds"]}), "flags": [one["flags"] for one in seen]}))
"""
CODINGS = [(bits, 4) for bits in ("1", "2", "3", "4", "6", "8")] + [("lossless", 7), ("lossless,sensitivity:on,refresh:10", 14)]


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
layers = torch.nn.Sequential(torch.nn.Linear(1 << 10, 1 << 10), torch.nn.Linear(1 << 10, 8)).cuda()
layers(torch.ones(64, 1 << 10, device="cuda")).sum().backward()
torch.cuda.synchronize()
"""


@pytest.fixture(scope="module")
def swept(under_pleat):
    """The sweep on the device, once for each coding."""

    def run(bits, steps):
        return under_pleat(SWEEP, "cuda", str(steps), conf=f"cuda:1,bits:{bits},min_bytes:0", shadow=True)

    return [run(bits, steps) for bits, steps in CODINGS]


def test_each_kernel_is_launched_or_waits_for_a_named_issue(kernels, swept, under_pleat):
    own = launches(under_pleat(FIRST_USE, conf="cuda:1,bits:4,min_bytes:0", shadow=True))
    launched = {name for outcome in swept for name, count in launches(outcome).items() if count > own.get(name, 0)}
    waiting = {name for name in kernels if any(re.fullmatch(names, name) for names in WITHOUT_CALLER.values())}
    assert own and len(kernels) > 100 and launched <= kernels
    assert sorted(kernels - waiting - launched) == []
    assert sorted(waiting & launched) == []


def test_each_form_of_a_payload_is_written_or_waits_for_a_named_issue(swept, runner, repository):
    (header,) = repository.glob("compress/**/format.h")
    kinds, flags = (
        {name: int(number) for name, number in re.findall(pattern, header.read_text(), re.MULTILINE)}
        for pattern in (r"^  k(\w+) = (\d+),\s+//", r"^inline constexpr std::uint8_t kFlag(\w+) = (\d+);")
    )
    on_host = [runner.run(SWEEP, conf=f"bits:{bits},min_bytes:0", args=("cpu", "2")) for bits in ("4", "2", "lossless")]
    written = [json.loads(outcome.stdout.splitlines()[-1]) for outcome in (*on_host, *swept)]
    found = {name for name, kind in kinds.items() if any(kind in one["kinds"] for one in written)}
    found |= {name for name, flag in flags.items() if any(flag & of_type for one in written for of_type in one["flags"])}
    waiting = {name for names in WITHOUT_WRITER.values() for name in names}
    assert len(kinds) >= 6 and len(flags) >= 6
    assert sorted((kinds.keys() | flags.keys()) - found - waiting) == []
    assert sorted(waiting & found) == []
