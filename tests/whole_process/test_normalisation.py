"""Rows that do not vary: a normalisation multiplies the noise near them by 1/sqrt(eps)."""

import pytest

from conftest import LOSSY

PADDING = """
    import torch, pleat_test_support as t
    from torch import nn
    B, T, D = 64, 64, WIDTH
    class HandWritten(nn.Module):                            # as transformers' LlamaRMSNorm
        def __init__(self, _):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(D))
        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
    class ByVariance(HandWritten):
        def forward(self, x):
            return self.weight * (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5)
    lengths = 8 + torch.arange(B)[:, None] * 7 % (T - 8)
    positions = torch.arange(T)
    masks = {"at the end": positions < lengths, "here and there": (positions * 7 + torch.arange(B)[:, None] * 3) % 5 < 3}
    result = {}
    for norm in (nn.LayerNorm, nn.RMSNorm, HandWritten, ByVariance):
        for where, mask in masks.items():
            torch.manual_seed(0)
            net = nn.ModuleList([nn.Embedding(100, D, padding_idx=0), nn.Linear(D, D, bias=False), norm(D), nn.Linear(D, 10)])
            embedding, linear, normalise, head = net
            ids = torch.randint(1, 100, (B, T)) * mask
            h = nn.functional.gelu(normalise(linear(embedding(ids)))).mean(1)
            nn.functional.cross_entropy(head(h), torch.arange(B) % 10).backward()
            result[f"{norm.__name__}, {where}"] = [p.grad for p in net.parameters()]
    t.emit(**result)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("width", [64, 96, 256])
def test_padding_does_not_disturb_a_normalisation(run_pair, close, width):
    pair = run_pair(PADDING.replace("WIDTH", str(width)), conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=16).json
    assert len(stock) >= 8
    close({k: pleat[k] for k in stock if ", " in k}, {k: stock[k] for k in stock if ", " in k}, relative=0.2)
    if pair.pleat.stats is not None:
        assert any((pleat[k][1] != stock[k][1]).any() for k in stock if ", " in k), "nothing was lossy"
        records = pair.pleat.stats["records"]
        assert records["source_bytes"] > 4 * records["payload_bytes"]


SCALES = """
    import torch, pleat_test_support as t
    from torch import nn
    torch.manual_seed(0)
    x = torch.randn(2048, 64) * torch.logspace(-2, 2, 2048)[torch.randperm(2048), None]
    result = {}
    for name, norm in {"layer": nn.LayerNorm(64), "rms": nn.RMSNorm(64)}.items():
        linear = nn.Linear(64, 64, bias=False)
        (norm(linear(x)) * t.noise(2048, 64, seed=1)).sum().backward()
        result[name] = [linear.weight.grad]
    part = x.clone()
    part[::3] = 0
    layer, linear = nn.LayerNorm(64), nn.Linear(64, 64, bias=False)
    (layer(linear(part)[4:]) * t.noise(2044, 64, seed=1)).sum().backward()        # fills not all of its storage
    result["part"] = [linear.weight.grad, layer.weight.grad]
    image = torch.randn(8, 16, 20, 20)
    image[:, 3] *= 1e-3
    image[5] = 0
    for name, norm in {"batch": nn.BatchNorm2d(16), "group": nn.GroupNorm(16, 16), "instance": nn.InstanceNorm2d(16, affine=True)}.items():
        scale = torch.ones(1, 16, 1, 1, requires_grad=True)
        (norm(image * scale) * t.noise(8, 16, 20, 20, seed=2)).sum().backward()
        # The others' scales matter to nobody: what stands there is rounding, or noise.
        result[name] = [scale.grad[0, 3], norm.weight.grad]
    t.emit(**result)
"""


@pytest.mark.smoke
def test_rows_of_unlike_scale_do_not_disturb_each_other(run_pair, close):
    pair = run_pair(SCALES, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1).json
    for name in ("layer", "rms", "part", "batch", "group", "instance"):
        close(pleat[name], stock[name], relative=0.2)


LINES = """
    import torch, pleat_test_support as t
    from torch import nn
    torch.manual_seed(0)
    result = {}
    x = t.noise(512, 300, seed=1)
    x[:, ::10] = x[0, ::10] * 9                              # saturated features
    for name, function in {"tanh": torch.tanh, "as it is": lambda h: h * 1, "negative": lambda h: -h.abs()}.items():
        net = nn.Sequential(nn.Linear(300, 300), nn.BatchNorm1d(300), nn.Linear(300, 10))
        with torch.no_grad():
            net[0].weight.copy_(torch.eye(300))
        h = net[2](net[1](function(net[0](x))))
        nn.functional.cross_entropy(h, torch.arange(512) % 10).backward()
        result[name] = [net[0].weight.grad, net[1].weight.grad, net[2].weight.grad]
    image = t.noise(16, 32, 14, 14, seed=2)
    image[:, 5] = 3
    image[:, 9] *= 1e-3
    for name, norm in {"batch": nn.BatchNorm2d(32), "group": nn.GroupNorm(32, 32)}.items():
        for memory in (torch.contiguous_format, torch.channels_last):
            scale = torch.ones(1, 32, 1, 1, requires_grad=True)
            y = norm((image * scale).to(memory_format=memory))
            (y * t.noise(16, 32, 14, 14, seed=3)).sum().backward()
            result[f"{name} {memory}"] = [scale.grad[0, 9], norm.weight.grad]
    wide = t.noise(256, 512, seed=4)
    wide[:, 300] *= 1000                                     # groups of columns beside each other are not alike
    norm, scale = nn.BatchNorm1d(512), torch.ones(512, requires_grad=True)
    (norm(wide * scale) * t.noise(256, 512, seed=5)).sum().backward()
    result["wide"] = [norm.weight.grad]
    small = t.noise(64, 64, 3, 3, seed=6)
    small[:, 7] *= 1e-3
    norm, scale = nn.BatchNorm2d(64), torch.ones(1, 64, 1, 1, requires_grad=True)
    (norm(small * scale) * t.noise(64, 64, 3, 3, seed=7)).sum().backward()
    result["small planes"] = [scale.grad[0, 7], norm.weight.grad]
    samples = t.noise(256, 64, seed=8)
    samples[::8] *= 1e-3
    norm, scale = nn.GroupNorm(8, 64), torch.ones(256, 64, requires_grad=True)
    (norm(samples * scale) * t.noise(256, 64, seed=9)).sum().backward()
    result["samples"] = [scale.grad[::8], norm.weight.grad]
    part = t.noise(256, 3, 5, 5, seed=10)
    part[::8] *= 1e-3
    norm, scale = nn.LayerNorm((3, 5, 5)), torch.ones(256, 3, 5, 5, requires_grad=True)
    (norm(part * scale) * t.noise(256, 3, 5, 5, seed=11)).sum().backward()
    result["of several dimensions"] = [scale.grad[::8], norm.weight.grad]
    bad = t.noise(128, 64, seed=12)
    bad[:, 5] = 0
    bad[9, 5] = float("nan")
    norm, scale = nn.BatchNorm1d(64).eval(), torch.ones(64, requires_grad=True)
    (norm(bad * scale) * t.noise(128, 64, seed=13)).sum().backward()
    result["not a number"] = [norm.weight.grad]
    t.emit(**result)
"""


@pytest.mark.smoke
def test_columns_that_do_not_vary_are_exact(run_pair, close):
    pair = run_pair(LINES, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=8).json
    assert "not a number" in stock
    for name in ("tanh", "as it is", "negative", "wide", "small planes", "samples", "of several dimensions", "not a number", *(f"{n} torch.{m}" for n in ("batch", "group") for m in ("contiguous_format", "channels_last"))):
        close(pleat[name], stock[name], relative=0.2)
    if pair.pleat.stats is not None:
        records = pair.pleat.stats["records"]
        assert records["source_bytes"] > 3 * records["payload_bytes"]  # a tenth and more is exact


FEW = """
    import torch, pleat_test_support as t
    from torch import nn
    def payload(rows, width, norm, zero=(), flat=(), mask=None):
        x = t.activations(t.noise(rows, width, seed=1))
        h = x * 1.5
        scale = torch.ones(rows, 1)
        scale[list(zero)] = -0.0
        scale[list(flat)] = 1e-6
        y = norm(h * scale)
        del h
        now = t.stats()["bytes"]["payload"]["current"], t.stats()["bytes"]["saved_raw"]["current"]
        y.sum().backward()
        return now
    whole = payload(4096, 96, nn.LayerNorm(96)) if t.stats() else None
    t.emit(sizes=t.stats() and {
        "none": whole,
        "one zero": payload(4096, 96, nn.LayerNorm(96), zero=[7]),
        "every other zero": payload(4096, 96, nn.LayerNorm(96), zero=range(0, 4096, 2)),
        "one flat": payload(4096, 96, nn.LayerNorm(96), flat=[7]),
    })
"""


def test_a_few_such_rows_take_no_more_than_themselves(run_script):
    result = run_script(FEW, conf=LOSSY).active(encoded=4)
    if result.stats is None:
        return
    sizes = result.json["sizes"]
    payload, raw = sizes["none"]
    for name, (with_rows, raw_with_rows) in sizes.items():
        assert raw_with_rows == raw, (name, sizes)
        assert with_rows <= payload * 1.2 + 2000, (name, sizes)


EMPTY = """
    import torch, pleat_test_support as t
    from torch import nn
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1, bias=False), nn.GroupNorm(64, 64), nn.ReLU(),
                        nn.Conv2d(64, 32, 3, stride=2, bias=False), nn.GroupNorm(32, 32), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    images = torch.zeros(200, 1, 8, 8)
    images[::2] = t.noise(100, 1, 8, 8, seed=1)              # every other is a view that is missing
    nn.functional.cross_entropy(net(images)[::2], torch.arange(100) % 10).backward()
    t.emit(gradients=[p.grad for p in net.parameters()])
"""


def test_the_statistics_of_a_normalisation_are_exact(run_pair, close):
    pair = run_pair(EMPTY, conf=LOSSY)
    close(pair.pleat.active(encoded=4).json["gradients"], pair.stock.check().json["gradients"], relative=0.2)


SCRIPTED = """
    import torch, pleat_test_support as t
    @torch.jit.script
    def quotient(x, y):
        return (x * 1.5) / (y + 0.01)
    gradients = []
    for _ in range(5):
        x, y = t.noise(64, 64, seed=1).requires_grad_(), t.noise(64, 64, seed=2).abs().requires_grad_()
        gradients.append(torch.autograd.grad(quotient(x * 1, y * 1).sum(), [x, y]))
    t.emit(first=gradients[0], later=gradients[2:])
"""


def test_tensors_saved_by_torchscript_are_exact(run_pair, identical):
    pair = run_pair(SCRIPTED, conf="bits:4,min_bytes:0")
    identical(pair.pleat.active(encoded=0).json, pair.stock.check().json)
