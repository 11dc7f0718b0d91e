"""Layers with peculiar saved tensors."""

import pytest

from conftest import LOSSLESS, LOSSY

RUN_LAYERS = """
    import torch, pleat_test_support as t
    def run(make, *inputs, steps=2):
        torch.manual_seed(0)
        layer = make()
        results = []
        for step in range(steps):
            layer.zero_grad()
            leaves = [t.activations(x) if x.is_floating_point() else x for x in inputs]
            outputs = layer(*[x * 1.0 if x.is_floating_point() else x for x in leaves])
            tensors = []
            def visit(o):
                if isinstance(o, (tuple, list)):
                    for item in o: visit(item)
                else:
                    tensors.append(o)
            visit(outputs)
            loss = sum(t.total(o * t.noise(*o.shape, seed=7)) for o in tensors if o.requires_grad)
            del outputs, tensors
            loss.backward()
            results.append({"inputs": [x.grad for x in leaves if x.is_floating_point()],
                            "parameters": t.gradients(layer),
                            "buffers": [b.clone() for b in layer.buffers() if b.is_floating_point()]})
        return results
"""

LAYERS = {
    "lstm": "run(lambda: torch.nn.LSTM(24, 48, 2, batch_first=True), t.noise(8, 20, 24, seed=1))",
    "lstm, bidirectional, dropout": "run(lambda: torch.nn.LSTM(24, 32, 2, dropout=0.2, bidirectional=True), t.noise(20, 8, 24, seed=1))",
    "lstm, projection": "run(lambda: torch.nn.LSTM(24, 48, proj_size=16), t.noise(20, 8, 24, seed=1))",
    "gru": "run(lambda: torch.nn.GRU(24, 48, 2), t.noise(20, 8, 24, seed=1))",
    "rnn": "run(lambda: torch.nn.RNN(24, 48, nonlinearity='relu'), t.noise(20, 8, 24, seed=1))",
    "lstm cell": "run(lambda: torch.nn.LSTMCell(24, 48), t.noise(64, 24, seed=1))",
    "conv channels_last": "run(lambda: torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 3)).to(memory_format=torch.channels_last), t.noise(4, 8, 20, 20, seed=1).contiguous(memory_format=torch.channels_last))",
    "conv groups, dilation, transposed": "run(lambda: torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, groups=4, dilation=2), torch.nn.ConvTranspose2d(16, 8, 3, stride=2)), t.noise(4, 8, 20, 20, seed=1))",
    "conv1d and conv3d": "run(lambda: torch.nn.Sequential(torch.nn.Conv3d(2, 4, 3), torch.nn.Flatten(2), torch.nn.Conv1d(4, 4, 5)), t.noise(2, 2, 8, 8, 8, seed=1))",
    "rrelu": "run(lambda: torch.nn.Sequential(torch.nn.RReLU(), torch.nn.Hardswish()), t.noise(64, 256, seed=1))",
    "rrelu in place": "run(lambda: torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.RReLU(inplace=True)), t.noise(64, 64, seed=1))",
    "batch_norm": "run(lambda: torch.nn.Sequential(torch.nn.BatchNorm2d(16, momentum=0.5), torch.nn.ReLU()), t.noise(8, 16, 12, 12, seed=1), steps=3)",
    "instance_norm": "run(lambda: torch.nn.InstanceNorm2d(16, affine=True, track_running_stats=True), t.noise(8, 16, 12, 12, seed=1), steps=3)",
    "group_norm and layer_norm": "run(lambda: torch.nn.Sequential(torch.nn.GroupNorm(4, 16), torch.nn.LayerNorm([16, 12, 12])), t.noise(8, 16, 12, 12, seed=1))",
    "in-place chain": "run(lambda: torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(inplace=True), torch.nn.Linear(64, 64), torch.nn.SELU(inplace=True)), t.noise(128, 64, seed=1))",
    "embedding": "run(lambda: torch.nn.Embedding(100, 32, padding_idx=3), torch.arange(400).reshape(20, 20) % 100)",
    "embedding, scaled": "run(lambda: torch.nn.Embedding(100, 32, max_norm=1.0, scale_grad_by_freq=True), torch.arange(400).reshape(20, 20) % 100)",
    "embedding_bag": "run(lambda: torch.nn.EmbeddingBag(100, 32, mode='mean'), torch.arange(400).reshape(20, 20) % 100)",
    "embedding_bag max": "run(lambda: torch.nn.EmbeddingBag(100, 32, mode='max'), torch.arange(400).reshape(20, 20) % 100)",
    "embedding sparse": "run(lambda: torch.nn.Embedding(100, 32, sparse=True), torch.arange(400).reshape(20, 20) % 100)",
    "embedding_bag sparse": "run(lambda: torch.nn.EmbeddingBag(100, 32, mode='sum', sparse=True), torch.arange(400).reshape(20, 20) % 100)",
    "pooling": "run(lambda: torch.nn.Sequential(torch.nn.MaxPool2d(2), torch.nn.AvgPool2d(2), torch.nn.AdaptiveMaxPool2d(2)), t.noise(8, 16, 24, 24, seed=1))",
    "upsampling": "run(lambda: torch.nn.Sequential(torch.nn.Upsample(scale_factor=2, mode='bicubic'), torch.nn.PixelShuffle(2)), t.noise(2, 16, 12, 12, seed=1))",
    "transformer layer": "run(lambda: torch.nn.TransformerEncoderLayer(64, 4, 128, 0.1, batch_first=True), t.noise(4, 30, 64, seed=1))",
    "weight norm": "run(lambda: torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(64, 64)), t.noise(128, 64, seed=1))",
    "spectral norm": "run(lambda: torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(64, 64)), t.noise(128, 64, seed=1))",
    "orthogonal": "run(lambda: torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(32, 32)), t.noise(128, 32, seed=1))",
    "bilinear": "run(lambda: torch.nn.Bilinear(16, 16, 8), t.noise(64, 16, seed=1), t.noise(64, 16, seed=2))",
}
ALL_LAYERS = (
    RUN_LAYERS
    + "    results = {}\n"
    + "".join(f"    results[{name!r}] = {call}\n" for name, call in LAYERS.items())
    + "    t.emit(results=results)\n"
)


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSLESS + ",when:forward_end"])
def test_every_layer_is_bit_identical_to_stock_without_loss(run_pair, identical, conf):
    pair = run_pair(ALL_LAYERS, conf=conf)
    stock, pleat = pair.stock.check().json["results"], pair.pleat.active(encoded=40).json["results"]
    wrong = []
    for name in LAYERS:
        try:
            identical(pleat[name], stock[name])
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSY, LOSSY + ",place:inplace"])
def test_every_layer_is_near_stock_at_four_bits(run_pair, close, identical, conf):
    pair = run_pair(ALL_LAYERS, conf=conf)
    stock, pleat = pair.stock.check().json["results"], pair.pleat.active(encoded=50).json["results"]
    wrong = []
    for name in LAYERS:
        try:
            for mine, theirs in zip(pleat[name], stock[name]):
                identical(mine["buffers"], theirs["buffers"])
                close([mine["inputs"], mine["parameters"]], [theirs["inputs"], theirs["parameters"]], relative=0.7)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)


SPARSE = """
    import torch, warnings, pleat_test_support as t
    warnings.simplefilter("ignore")
    dense = t.noise(64, 48, seed=1)
    dense[dense.abs() < 1] = 0
    out = {}
    for name, convert in {"csr": lambda d: d.to_sparse_csr(), "coo": lambda d: d.to_sparse_coo().coalesce(),
                          "csc": lambda d: d.to_sparse_csc()}.items():
        try:
            values = convert(dense.clone()).requires_grad_()
            w = t.noise(48, 32, seed=2).requires_grad_()
            y = torch.sparse.mm(values, w * 1.0)
            loss = (y * t.noise(64, 32, seed=3)).sum()
            del y
            loss.backward()
            out[name] = {"w": w.grad, "layout": str(values.grad.layout) if values.grad is not None else None,
                         "values": values.grad.to_dense() if values.grad is not None else None}
        except RuntimeError as error:
            out[name] = {"error": str(error)[:200]}
    optimizer_table = torch.nn.Embedding(50, 8, sparse=True, _weight=t.noise(50, 8, seed=4))
    optimizer = torch.optim.SparseAdam(optimizer_table.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        optimizer_table(torch.arange(20) * 7 % 50).square().sum().backward()
        optimizer.step()
    out["sparse adam"] = optimizer_table.weight
    t.emit(out=out)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_sparse_tensors_pass_through(run_pair, identical, close, conf):
    pair = run_pair(SPARSE, conf=conf)
    stock, pleat = pair.stock.check().json["out"], pair.pleat.check().json["out"]
    assert "error" not in stock["csr"] and "error" not in stock["coo"]
    if conf == LOSSLESS:
        identical(pleat, stock)
    else:
        identical([pleat[k].get("w") for k in ("csr", "coo")], [stock[k].get("w") for k in ("csr", "coo")])
        close([pleat["sparse adam"]], [stock["sparse adam"]], relative=0.2)
