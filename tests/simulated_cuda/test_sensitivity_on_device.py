"""`sensitivity:on` for tensors saved on a device: extra passes make their noise there and stay invisible to the script."""

import json
import math

import pytest

from conftest import assert_identical

pytest_plugins = ("simulated",)

SCRIPT = """
import sys, torch
from torch import nn
from torch.nn import functional
from pleat_test_support import emit
kind, device, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(1)
torch.backends.mkldnn.enabled = False  # a device has no convolutions of that kind
torch.backends.cudnn.enabled = False
torch.manual_seed(0)
class TwoStreams(nn.Module):  # a half of it runs under a stream of its own, and so does its backward pass
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(64, 160), nn.GELU())
        self.second = nn.Sequential(nn.Linear(160, 160), nn.Tanh(), nn.Linear(160, 64))
        self.stream = torch.cuda.Stream()
    def forward(self, x):
        h = self.first(x)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            h.record_stream(self.stream)
            y = self.second(h)
        torch.cuda.current_stream().wait_stream(self.stream)
        y.record_stream(torch.cuda.current_stream())
        return y
class TwoDevices(nn.Module):  # by way of the host: torch itself does not wait for a gradient's copy from device to device
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(64, 160), nn.GELU()).to("cuda:0")
        self.second = nn.Sequential(nn.Linear(160, 160), nn.Tanh(), nn.Linear(160, 64)).to("cuda:1")
    def to(self, device):
        return self
    def forward(self, x):
        return self.second(self.first(x).cpu().to("cuda:1"))
MODELS = {
    "mlp": lambda: nn.Sequential(
        nn.Linear(64, 160), nn.GELU(), nn.Linear(160, 160), nn.ReLU(), nn.Linear(160, 160), nn.Tanh(), nn.LayerNorm(160),
        nn.Linear(160, 64)),
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1),
        nn.BatchNorm2d(12), nn.GELU(), nn.Flatten(), nn.Linear(12 * 64, 10)),
    "two streams": TwoStreams,
    "two devices": TwoDevices,
}
model = MODELS[kind]().to(device)
optimiser = torch.optim.SGD(model.parameters(), 1e-2)
data = torch.Generator().manual_seed(1)
losses = []
for step in range(steps):
    if kind == "cnn":
        x = torch.randn(32, 3, 8, 8, generator=data).to(device)
        loss = functional.cross_entropy(model(x), torch.randint(0, 10, (32,), generator=data).to(device))
    else:
        x = torch.randn(256, 64, generator=data)
        y = x.roll(1, 1).to("cuda:1" if kind == "two devices" else device)
        loss = (model(x.to(device)) - y).square().mean()
    optimiser.zero_grad()
    loss.backward()
    grads = [p.grad.clone() for p in model.parameters()]
    optimiser.step()
    losses.append(loss.item())
torch.cuda.synchronize() if device == "cuda" else None
emit(losses=losses, grads=grads, state=list(model.state_dict().values()))
"""

LOSSLESS = "cuda:1,bits:lossless,min_bytes:0,sensitivity:on,refresh:10"
LOSSY = "cuda:1,bits:4,min_bytes:0,sensitivity:on,refresh:10"


@pytest.mark.smoke
@pytest.mark.parametrize("lag, seed", [(0, 0), (200, 3)])
@pytest.mark.parametrize("kind", ["mlp", "cnn", "two streams", "two devices"])
def test_extra_passes_on_a_device_are_invisible_to_the_script(kind, lag, seed, simulator, under_pleat):
    options = {"devices": 2} if kind == "two devices" else {}
    stock = simulator.once(SCRIPT, kind, "cuda", "32", **options)
    mine = under_pleat(SCRIPT, kind, "cuda", "32", conf=LOSSLESS, lag=lag, seed=seed, **options)
    assert_identical(mine.values, stock.values)
    assert mine.reports == []
    found = mine.stats["sensitivity"]
    assert found["bursts"] >= 2 and found["refusals"] == [] and found["measured"] >= 3, mine.stderr
    launches = mine.facts["launches"]
    assert launches["pleat_mix_float32"] == launches["pleat_spread_float32"] >= 15 * 3 * found["bursts"]
    # The clean pass, 15 with noise and the script's own: gradients are sketched on their own
    # device.
    assert launches["pleat_sketch_float32"] == 17 * found["bursts"] * len(mine.values["grads"])


@pytest.mark.parametrize("lag, seed", [(0, 0), (200, 3)])
@pytest.mark.parametrize("kind", ["mlp", "cnn", "two streams", "two devices"])
def test_passes_are_ordered_with_noise_in_payloads_too(kind, lag, seed, simulator, under_pleat):
    """No save is refused, no wait for a device is in vain, and the first ten steps equal those of a run without."""
    options = {"devices": 2} if kind == "two devices" else {}
    mine = under_pleat(SCRIPT, kind, "cuda", "24", conf=LOSSY, lag=lag, seed=seed, **options)
    without = under_pleat(SCRIPT, kind, "cuda", "24", conf="cuda:1,bits:4,min_bytes:0", **options)
    assert mine.reports == []
    found = mine.stats["sensitivity"]
    assert found["bursts"] >= 2 and found["refusals"] == [] and found["measured"] >= 3, mine.stderr
    assert mine.values["losses"][:10] == without.values["losses"][:10]


def lossy_units(file):
    return {unit["key"]: unit for unit in json.loads(file.read_text())["units"] if unit.get("measurements")}


@pytest.mark.parametrize("bits", ["lossless", "4"])
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_measurements_on_a_device_equal_those_on_the_host(kind, bits, under_pleat, runner, tmp_path):
    """Weights and batches are the same, but only nearly so if payloads have noise."""
    on_host, on_device = tmp_path / "host.pleat", tmp_path / "device.pleat"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    conf = f"bits:{bits},min_bytes:0,sensitivity:on,recompute:0"
    runner.run(script, conf=f"{conf},profile:{on_host}", args=(kind, "cpu", "12")).check()
    assert under_pleat(SCRIPT, kind, "cuda", "12", conf=f"cuda:1,{conf},profile:{on_device}").code == 0
    host, device = lossy_units(on_host), lossy_units(on_device)
    most = max(unit["measurements"][0][1] for unit in host.values())
    matter = {key for key, unit in host.items() if unit["measurements"][0][1] > 0.01 * most}
    assert matter <= device.keys() and len(matter) >= 3
    for key in matter:
        a, b = host[key], device[key]
        assert b["measurements"][0][1] == pytest.approx(a["measurements"][0][1], rel=0.3), (a, b)
        errors = [{width: error for width, _, error in unit["costs"]} for unit in (a, b)]
        for width in errors[0].keys() & errors[1].keys():
            assert errors[1][width] == pytest.approx(errors[0][width], rel=0.05), (a, b)
        # A device has no shorter form of zeros: all tensors of a width have the same size.
        elements = math.prod(a["shape"])
        beside = {size - elements * width // 8 for width, size, _ in b["costs"] if width != 0}
        assert max(beside) - min(beside) < 64, b


CAPTURED = """
import torch
from torch import nn
from pleat_test_support import emit
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 160), nn.Tanh(), nn.Linear(160, 64)).cuda()
x = torch.randn(256, 64, device="cuda")
def step():
    for parameter in model.parameters():
        parameter.grad = None
    model(x).square().mean().backward()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(9):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()  # the pass in which sensitivity would be measured
graph.replay()
torch.cuda.synchronize()
emit(grads=[p.grad.clone() for p in model.parameters()])
"""


def test_a_backward_pass_that_is_captured_is_not_run_again(simulator, under_pleat):
    stock = simulator.once(CAPTURED)
    mine = under_pleat(CAPTURED, conf=LOSSLESS)
    assert_identical(mine.values, stock.values)
    found = mine.stats["sensitivity"]
    assert found["bursts"] == 0 and found["refusals"] == ["a CUDA graph is being captured"], mine.stderr
