"""Whole training loops: equal to stock without loss, close to it at four bits."""

import pytest

from conftest import LOSSLESS, LOSSY, OFF

TRAINING = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    class Block(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.attention = torch.nn.MultiheadAttention(width, 4, batch_first=True)
            self.mlp = torch.nn.Sequential(
                torch.nn.Linear(width, 4 * width), torch.nn.GELU(),
                torch.nn.Dropout(0.1), torch.nn.Linear(4 * width, width))
        def forward(self, x):
            h = self.norm1(x)
            x = x + self.attention(h, h, h, need_weights=False)[0]
            return x + self.mlp(self.norm2(x))
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = torch.nn.Sequential(
                torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
                torch.nn.MaxPool2d(2), torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.BatchNorm2d(32),
                torch.nn.SiLU())
            self.blocks = torch.nn.Sequential(Block(32), Block(32))
            self.head = torch.nn.Linear(32, 10)
        def forward(self, x):
            x = self.stem(x).flatten(2).transpose(1, 2)
            return self.head(self.blocks(x).mean(1))
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    images, labels = torch.randn(32, 3, 24, 24), torch.arange(32) % 10
    losses, first = [], None
    for step in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        if first is None:
            first = t.gradients(model)
        optimizer.step()
        losses.append(loss.item())
    t.emit(losses=losses, first=first, parameters=[p for p in model.parameters()])
"""


@pytest.mark.smoke
@pytest.mark.parametrize(
    "conf",
    [
        OFF,
        LOSSLESS,
        LOSSLESS + ",when:forward_end",
        LOSSLESS + ",place:inplace",
        LOSSLESS + ",place:inplace,when:forward_end",
    ],
)
def test_without_loss_training_is_bit_identical_to_stock(run_pair, identical, conf):
    pair = run_pair(TRAINING, conf=conf, threads=2 if conf in (LOSSLESS, LOSSY) else 1)
    pair.stock.check()
    pair.pleat.active(released=100, encoded=50)
    identical(pair.pleat.json, pair.stock.json)


@pytest.mark.smoke
@pytest.mark.parametrize(
    "conf",
    [
        LOSSY,
        "bits:8,min_bytes:0",
        LOSSY + ",when:forward_end",
        LOSSY + ",place:inplace",
        LOSSY + ",place:inplace,when:forward_end",
        "bits:4",
    ],
)
def test_at_four_bits_and_more_training_learns_as_stock_does(run_pair, close, conf):
    pair = run_pair(TRAINING, conf=conf, threads=2 if conf in (LOSSLESS, LOSSY) else 1)
    stock, pleat = pair.stock.check().json, pair.pleat.active(released=50, encoded=20).json
    assert pleat["losses"][0] == stock["losses"][0], "the forward pass itself must be exact"
    close(pleat["first"], stock["first"], relative=0.1 if "bits:8" in conf else 0.5)
    assert stock["losses"][-1] < 0.2 * stock["losses"][0]
    assert pleat["losses"][-1] < 0.3 * stock["losses"][0]


@pytest.mark.parametrize("bits, codes", [("1", 2), ("2", 4), ("3", 8), ("2.5", 4)])
def test_few_bits_disturb_gradients_but_never_the_forward_pass(run_pair, close, bits, codes):
    pair = run_pair(TRAINING, conf=f"bits:{bits},min_bytes:0")
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=50).json
    assert pleat["losses"][0] == stock["losses"][0]
    # Noise is as wide as a step: at four bits a range has fifteen steps.
    close(pleat["first"], stock["first"], relative=0.5 * 15 / (codes - 1))
    if pair.pleat.stats is not None:
        differ = sum((mine != theirs).any() for mine, theirs in zip(pleat["first"], stock["first"]))
        assert differ > len(stock["first"]) / 2, "nothing was lossy"


WEIGHT_NOISE = """
    import torch, pleat_test_support as t
    rows, width, outputs = 512, 512, 64
    a, weight = t.activations(t.noise(rows, width, seed=1)), torch.nn.Parameter(t.noise(width, outputs, seed=2))
    g = t.noise(rows, outputs, seed=3)
    saved = (a * 1).detach()
    groups = saved.view(-1, 256)
    ranges = (groups.amax(1) - groups.amin(1)).repeat_interleave(256).view(rows, width).double()
    exact = saved.double().t() @ g.double()
    found = {}
    for bits in (1, 2, 3, 4, 6, 8):
        if t.stats():
            t.bridge().enable(f"bits:{bits}")
        variance = (ranges / (2 ** bits - 1)).square() / 12                # of noise uniform over a step
        length = (variance * g.double().square().sum(1, keepdim=True)).sum()
        along = (variance * (g.double() @ exact.t()).square()).sum().sqrt()
        lengths, projections = [], []
        for _ in range(8):
            h = a * 1
            y = h @ weight
            del h
            gradient, = torch.autograd.grad((y * g).sum(), weight)
            error = gradient.double() - exact
            lengths.append((error.square().sum() / length).item())
            projections.append(((error * exact).sum() / along).item())
        found[str(bits)] = [sum(lengths) / 8, sum(projections) / 8 ** 0.5]
    t.emit(found=found)
"""


def test_a_weight_gradients_noise_follows_from_the_steps_and_has_no_direction(run_script):
    """A product's weight gradient is linear in its save: its squared error has a closed form."""
    result = run_script(WEIGHT_NOISE, conf=LOSSY).active(encoded=40)
    for bits, (length, along) in result.json["found"].items():
        if result.stats is not None:
            # At 1 and 2 bits groups are rotated, and have levels for a Gaussian: less than a step's.
            least = 0.95 if int(bits) > 2 else 0.1
            assert least < length < 1.05, f"{bits} bits: {length:.3f} of the expected squared error"
        assert abs(along) < 5, f"{bits} bits: {along:.1f} standard deviations along the gradient"


ACCUMULATION = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 64), t.Gate(), torch.nn.SiLU(),
        torch.nn.Linear(64, 8))
    x, y = torch.randn(64, 64), torch.randn(64, 8)
    seen = []
    for way in ("one by one", "all graphs at once"):
        model.zero_grad()
        graphs = []
        for part in range(4):
            rows = slice(16 * part, 16 * part + 16)
            loss = (model(x[rows]) - y[rows]).square().mean() / 4
            if way == "one by one":
                loss.backward()
            else:
                graphs.append(loss)
            del loss
        while graphs:
            graphs.pop().backward()
        seen.append(t.gradients(model))
    t.emit(gradients=seen, alive=t.count("alive"))
"""


@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_gradients_accumulate_over_micro_batches(run_pair, identical, close, conf):
    pair = run_pair(ACCUMULATION, conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=8).json
    if conf == LOSSLESS:
        identical(pleat["gradients"], stock["gradients"])
    else:
        close(pleat["gradients"], stock["gradients"], relative=0.3)


SAVE_AND_LOAD = """
    import io, torch, pleat_test_support as t
    def build():
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(32, 64), t.Gate(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 1))
        return model, torch.optim.Adam(model.parameters(), lr=1e-2)
    def steps(model, optimizer, count):
        for _ in range(count):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            optimizer.step()
    x, y = t.noise(128, 32, seed=1), t.noise(128, 1, seed=2)
    model, optimizer = build()
    steps(model, optimizer, 3)
    pending = (model(x) - y).square().mean()          # a graph is alive while we save
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "x": x}, file)
    pending.backward()
    file.seek(0)
    model, optimizer = build()
    loaded = torch.load(file, weights_only=True)
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    at_load = t.digest(*model.state_dict().values())
    steps(model, optimizer, 3)
    t.emit(at_load=at_load, x=t.digest(loaded["x"]), final=list(model.parameters()))
"""


@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_a_model_saved_and_loaded_in_mid_training_continues(run_pair, identical, close, conf):
    pair = run_pair(SAVE_AND_LOAD, conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=7).json
    if conf == LOSSLESS:
        identical(pleat, stock)
    else:
        assert pleat["x"] == stock["x"]
        close(pleat["final"], stock["final"], relative=0.3)


LOW_PRECISION = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    widths = [48, 96, 96, 48]
    layers = [torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:])]
    mode = {mode!r}
    adapters = [(torch.nn.Parameter(torch.randn(4, a) * 0.1), torch.nn.Parameter(torch.randn(b, 4) * 0.1))
                for a, b in zip(widths, widths[1:])]
    for layer in layers:
        layer.weight.requires_grad_(mode == "trainable")
        layer.bias.requires_grad_(mode == "trainable")
    leaf = t.activations(t.noise(256, 48, seed=3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = leaf * 1.0
        for layer, (a, b) in zip(layers, adapters):
            out = layer(h)
            if mode == "lora":
                out = out + torch.nn.functional.linear(torch.nn.functional.linear(h, a), b)
            h = t.Gate()(out)
        del out
    loss = (h.float() * t.noise(256, 48, seed=4)).sum()
    del h
    loss.backward()

    others = [p.grad for l in layers for p in l.parameters() if p.grad is not None]
    others += [p.grad for pair in adapters for p in pair if p.grad is not None]
    t.emit(input=leaf.grad, others=others)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("mode", ["frozen", "lora", "trainable"])
def test_under_autocast_weights_and_their_casts_are_never_lossy(run_pair, identical, close, mode):
    """The gradient of the input runs through weights only, so it stays bit-identical at 4 bits."""
    pair = run_pair(LOW_PRECISION.format(mode=mode), conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=3 if mode == "frozen" else 5).json
    identical(pleat["input"], stock["input"])
    close(pleat["others"], stock["others"], relative=0.3)


@pytest.mark.parametrize("mode", ["frozen", "lora", "trainable"])
def test_under_autocast_lossless_is_bit_identical(run_pair, identical, mode):
    pair = run_pair(LOW_PRECISION.format(mode=mode), conf=LOSSLESS)
    pair.stock.check()
    identical(pair.pleat.active().json, pair.stock.json)


HALF_TRAINING = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    dtype = torch.{dtype}
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), t.Gate(), torch.nn.GELU(), torch.nn.LayerNorm(256),
        torch.nn.Linear(256, 16)).to(dtype)
    x, y = t.noise(128, 64, seed=1).to(dtype), t.noise(128, 16, seed=2).to(dtype)
    loss = (model(x) - y).square().mean()
    loss.backward()
    t.emit(loss=loss.item(), gradients=t.gradients(model))
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_half_precision_models(run_pair, identical, close, dtype, conf):
    pair = run_pair(HALF_TRAINING.format(dtype=dtype), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1 if conf == LOSSLESS else 3).json
    assert pleat["loss"] == stock["loss"]
    if conf == LOSSLESS:
        identical(pleat["gradients"], stock["gradients"])
    else:
        close(pleat["gradients"], stock["gradients"], relative=0.3)
