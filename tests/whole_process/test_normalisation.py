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
    image = torch.randn(8, 16, 20, 20)
    image[:, 3] *= 1e-3
    image[5] = 0
    for name, norm in {"batch": nn.BatchNorm2d(16), "group": nn.GroupNorm(16, 16), "instance": nn.InstanceNorm2d(16)}.items():
        scale = torch.ones(1, 16, 1, 1, requires_grad=True)
        (norm(image * scale) * t.noise(8, 16, 20, 20, seed=2)).sum().backward()
        result[name] = [scale.grad]
    t.emit(**result)
"""


@pytest.mark.smoke
def test_rows_of_unlike_scale_do_not_disturb_each_other(run_pair, close):
    pair = run_pair(SCALES, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1).json
    for name in ("layer", "rms", "batch", "group", "instance"):
        close(pleat[name], stock[name], relative=0.2)


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


def test_torchscript_is_exact_once_it_is_known(run_pair, identical):
    pair = run_pair(SCRIPTED, conf=LOSSY)
    identical(pair.pleat.active(encoded=0).json, pair.stock.check().json)
