"""Restored values: within the codec's bound, unbiased, and exact wherever exactness is promised."""

import numpy
import pytest

from conftest import LOSSLESS, LOSSY, STOCK_ONLY, assert_identical

BOUND = """
    import torch, pleat_test_support as t
    a, b = (t.activations(t.noise({n}, seed=s)) for s in (1, 2))
    scale = torch.logspace(-3, 3, {n})
    x, w = a * 1 + 0, b * 1 + 0.5      # both signs: dithered, never plain stochastic rounding
    with torch.no_grad():
        x.mul_(scale)
    y = x * w
    ox, ow = x.detach().clone(), w.detach().clone()
    del x, w
    t.total(y)
    rx, rw = y.grad_fn._saved_self.detach(), y.grad_fn._saved_other.detach()
    range_ = torch.stack([g.max() - g.min() for g in ow.split(256)])
    t.emit(x_ratio=t.group_ratio(ox, rx, {bits}), w_ratio=t.group_ratio(ow, rw, {bits}),
           sum_of_errors=(rw - ow).double().sum().item(),
           deviation=(range_.double().square().sum() * 256 / 12 / (2 ** {bits} - 1) ** 2).sqrt().item(),
           rms=(rw - ow).double().square().mean().sqrt().item())
"""


@pytest.mark.smoke
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6, 8])
def test_restored_elements_are_within_their_groups_step_and_errors_average_out(run_script, bits):
    result = run_script(BOUND.format(n=1 << 18, bits=bits), conf=f"bits:{bits},min_bytes:0")
    got = result.active(encoded=2).json
    # At 1 and 2 bits groups of both signs are rotated: their steps are no bound.
    assert (got["x_ratio"] <= 1 or bits <= 2) and (got["w_ratio"] <= 1 or bits == 2)
    assert abs(got["sum_of_errors"]) <= 5 * max(got["deviation"], 1e-9)
    if result.stats is not None:
        assert got["w_ratio"] > 0.3, "nothing was lossy"
        # Subtractive dither: D^2/12. At 1 bit the groups of w (all positive, minimum below half a step)
        # decode plainly, lest they reach zero: at most D^2/4.
        assert got["rms"] <= (1.05 if bits > 1 else 3**0.5) * got["deviation"] / (1 << 9)


def test_odd_sizes_keep_the_bound(run_script):
    source = """
        import torch, pleat_test_support as t
        worst = {}
        for n in (1, 2, 3, 5, 31, 255, 256, 257, 511, 513, 1000, 4095, 65537):
            a, b = (t.activations(t.noise(n, seed=s)) for s in (1, 2))
            x, w = a + 1, b + 1
            ox = x.detach().clone()
            y = x * w
            del x, w
            t.total(y)
            worst[n] = t.group_ratio(ox, y.grad_fn._saved_self, 4)
        t.emit(worst=worst)
    """
    result = run_script(source, conf=LOSSY).active(encoded=10)
    assert all(ratio <= 1 for ratio in result.json["worst"].values()), result.json["worst"]


UNBIASED = """
    import torch, pleat_test_support as t
    a, b = (t.activations(t.noise(4096, seed=s)) for s in (1, 2))
    total, single, original = torch.zeros(4096, dtype=torch.float64), 0.0, None
    times = 64
    for _ in range(times):
        x, w = a + 1, b + 1
        y = x * w
        original = x.detach().double().clone()
        del x, w
        total_of_y = t.total(y)
        error = y.grad_fn._saved_self.detach().double() - original
        total += error
        single += error.square().mean().item() / times
        total_of_y.backward()
    t.emit(single=single ** 0.5, averaged=(total / times).square().mean().sqrt().item())
"""


def test_noise_is_fresh_for_every_payload_so_that_every_element_is_unbiased(run_script):
    """Averaging 64 restores of the same values shrinks the error of each element eightfold."""
    result = run_script(UNBIASED, conf=LOSSY).active(encoded=64)
    single, averaged = result.json["single"], result.json["averaged"]
    if result.stats is not None:
        assert single > 0
        assert averaged <= 1.4 * single / 8


ALIVE = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64), torch.nn.Tanh())
    x = t.noise(64, 64, seed=1)
    held = []
    for layer in model:
        layer.register_forward_hook(lambda module, inputs, output: held.extend([*inputs, output]))
    for _ in range(2):
        loss = model(x).square()
        held.append(loss)
        loss.mean().backward()
    dead_model = model[1](model[0](x * 2))
    t.emit(gradients=t.gradients(model), live=t.count("live_at_unpack"))
"""


@pytest.mark.smoke
def test_tensors_alive_at_unpack_are_returned_exactly(run_pair, identical):
    pair = run_pair(ALIVE, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.check().json
    identical(pleat["gradients"], stock["gradients"])
    assert pair.pleat.stats is None or pleat["live"] > 0


EXACT_TYPES = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    dtype = torch.{dtype}
    leaf = (t.noise(32, 48, seed=1, dtype=dtype)).requires_grad_()
    w = (t.noise(48, 48, seed=2, dtype=dtype) * 0.2).requires_grad_()
    def f():
        h = leaf * leaf
        h = (h @ w).tanh() * h.exp()
        h = torch.sin(h) @ w
        return (h * h.conj()).real.sum()
    f().backward()
    t.emit(leaf=leaf.grad, w=w.grad)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128"])
def test_double_and_complex_tensors_are_exact_at_four_bits(run_pair, identical, dtype):
    pair = run_pair(EXACT_TYPES.format(dtype=dtype), conf=LOSSY)
    pair.stock.check(), pair.pleat.active(released=3, encoded=0)
    identical(pair.pleat.json, pair.stock.json)


FACTORS = """
    import torch, pleat_test_support as t
    leaf = t.noise(24, 24, seed=1).requires_grad_()
    eye = torch.eye(24)
    weights = [t.noise(24, 24, seed=10 + i) for i in range(3)]
    def spd(a):
        return a @ a.t() + 24 * eye
    def weighted(*outputs):
        outputs = [o for o in outputs if o.requires_grad]
        return sum((o * weights[i][: o.shape[0], : o.shape[-1]].reshape(-1)[: o.numel()].reshape(o.shape)).sum()
                   for i, o in enumerate(outputs))
    def abs_svd(a):
        u, s, vh = torch.linalg.svd(a + 5 * eye)
        return s, (u * u), (vh * vh)
    cases = {
        "cholesky": lambda a: torch.linalg.cholesky(spd(a)),
        "inverse": lambda a: torch.linalg.inv(spd(a)),
        "eigvalsh": lambda a: torch.linalg.eigvalsh(spd(a)),
        "svdvals": lambda a: torch.linalg.svdvals(a + 0),
        "qr": lambda a: torch.linalg.qr(a + 5 * eye),
        "eigh": lambda a: torch.linalg.eigh(spd(a))[0],
        "lu": lambda a: torch.linalg.lu(a + 5 * eye)[1:],
        "cholesky_inverse": lambda a: torch.cholesky_inverse(torch.linalg.cholesky(spd(a))),
        "det": lambda a: torch.linalg.det(spd(a) / 24).reshape(1, 1),
    }
    grads = {}
    for name, case in cases.items():
        leaf.grad = None
        outputs = case(leaf)
        outputs = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
        loss = weighted(*outputs)
        del outputs
        loss.backward()
        grads[name] = leaf.grad
    # solve: both arguments are leaves, the factors and the result are not
    b = t.noise(24, 5, seed=3).requires_grad_()
    leaf.grad = None
    loss = (torch.linalg.solve(leaf, b) * weights[0][:, :5]).sum()
    loss.backward()
    grads["solve"], grads["solve b"] = leaf.grad, b.grad
    # and one where vectors enter the loss: bounded by the squares saved beside them, not by factors
    leaf.grad = None
    s, u2, v2 = abs_svd(leaf)
    loss = (s * weights[0][0]).sum()
    del s, u2, v2
    loss.backward()
    grads["svd values with vectors"] = leaf.grad
    t.emit(grads=grads)
"""


@pytest.mark.smoke
def test_factors_of_linear_algebra_are_exact_at_four_bits(run_pair, identical):
    pair = run_pair(FACTORS, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(released=5, encoded=0).json
    differing = []
    for name in stock["grads"]:
        try:
            identical(pleat["grads"][name], stock["grads"][name])
        except AssertionError as error:
            differing.append(f"{name}: {error}")
    assert not differing, "\n".join(differing)


FACTORS_SAVED = """
    import torch, pleat_test_support as t
    leaf = t.noise(64, 64, seed=1).requires_grad_()
    eye = torch.eye(64)
    cases = {
        "cholesky": lambda: torch.linalg.cholesky(leaf @ leaf.t() + 64 * eye),
        "qr": lambda: torch.linalg.qr(leaf + eye)[0],
        "svd": lambda: torch.linalg.svd(leaf + eye)[0],
        "eigh": lambda: torch.linalg.eigh(leaf + leaf.t())[1],
        "inv": lambda: torch.linalg.inv(leaf + 5 * eye),
        "lu_factor": lambda: torch.linalg.lu_factor(leaf + 5 * eye)[0],
        "solve": lambda: torch.linalg.solve(leaf + 5 * eye, leaf * 2),
    }
    saved = {}
    for name, case in cases.items():
        out = case()
        node = out.grad_fn
        del out
        names = [n for n in dir(node) if n.startswith("_saved_") and "self" not in n and n != "_saved_A"]
        saved[name] = {n: getattr(node, n) for n in names if isinstance(getattr(node, n), torch.Tensor)}
    t.emit(saved={k: {n: v.detach() for n, v in d.items()} for k, d in saved.items()})
"""


def test_factors_read_back_from_their_nodes_are_bit_identical(run_pair, identical):
    pair = run_pair(FACTORS_SAVED, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(released=5, encoded=0).json
    assert all(stock["saved"][name] for name in stock["saved"])
    identical(pleat["saved"], stock["saved"])


FRAGILE = """
    import torch, pleat_test_support as t
    a = t.noise(64, 512, seed=1).requires_grad_()
    def saved(f):
        out = f((a * 8) + 0)
        original = out.detach().clone()
        node = out.grad_fn
        del out
        return t.group_ratio(original, node._saved_result, 8)
    t.emit(softmax=saved(lambda x: x.softmax(-1)), log_softmax=saved(lambda x: x.log_softmax(-1)),
           exp=saved(lambda x: x.exp()))
"""


def test_a_tensor_that_enters_another_exponential_keeps_at_least_eight_bits(run_script):
    got = run_script(FRAGILE, conf=LOSSY).active(released=3, encoded=0).json
    assert got["softmax"] <= 1 and got["log_softmax"] <= 1 and got["exp"] <= 1


MASKED = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    q, k, v = (t.activations(t.noise(2, 4, 64, 16, seed=s)) for s in (1, 2, 3))
    out_of = [torch.nn.Parameter(t.noise(16, 16, seed=s) / 4) for s in (4, 5)]
    causal = torch.ones(64, 64, dtype=torch.bool).tril()
    padded = causal.clone(); padded[:, 50:] = False; padded[:, 0] = True
    out = {}
    for name, mask in (("causal", causal), ("padded", padded)):
        for leaf in (q, k, v):
            leaf.grad = None
        scores = (q * 1) @ (k * 1).transpose(-1, -2) / 4
        scores = scores.masked_fill(~mask, float("-inf"))
        attention = scores.softmax(-1)
        y = attention @ (v * 1)
        z = torch.logsumexp(scores * 1.5, -1)                # saves its -inf input
        w = torch.nn.functional.scaled_dot_product_attention(q * 1, k * 1, v * 1, attn_mask=mask)
        loss = (y @ out_of[0]).square().mean() + z.mean() + (w @ out_of[1]).square().mean()
        del scores, attention, y, z, w
        loss.backward()
        out[name] = [q.grad, k.grad, v.grad]
    logits = t.activations(t.noise(32, 100, seed=7))
    masked = (logits * 1).masked_fill(torch.arange(100) % 3 == 0, float("-inf"))
    loss = torch.nn.functional.cross_entropy(masked, torch.arange(32) * 3 + 1)
    del masked
    loss.backward()
    out["logits"] = [logits.grad]
    t.emit(**out)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_masked_logits_with_minus_infinity(run_pair, identical, close, conf):
    pair = run_pair(MASKED, conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=4 if conf == LOSSLESS else 8).json
    if conf == LOSSLESS:
        identical(pleat, stock)
    for name in ("causal", "padded", "logits"):
        close(pleat[name], stock[name], relative=0.5)
        for mine, theirs in zip(pleat[name], stock[name]):
            assert ((mine == 0) >= (theirs == 0)).all() or name != "logits", "masked logits got a gradient"


INFINITY = """
    import torch, pleat_test_support as t
    a, b = (t.activations(t.noise(512, 512, seed=s)) for s in (1, 2))
    poison = torch.zeros(512, 512)
    poison[3, 5], poison[7, 300], poison[9, 11] = float("inf"), float("nan"), float("-inf")
    x, w = a + poison, b + 0
    original = x.detach().clone()
    y = x * w
    del x, w
    loss = t.total(y)
    restored = y.grad_fn._saved_self.detach().clone()
    loss.backward()
    clean = torch.ones(512 * 512, dtype=torch.bool)
    for r, c in ((3, 5), (7, 300), (9, 11)):
        start = (r * 512 + c) // 256 * 256
        clean[start:start + 256] = False
    whole = clean.reshape(512, 512)
    finite = original.isfinite()
    ratios = []
    for before, after in zip(original.reshape(-1, 256), restored.reshape(-1, 256)):
        if not before.isfinite().all():  # three of sixteen codes stand for what is not finite
            before, after = before[before.isfinite()], after[before.isfinite()]
            ratios.append(float((after - before).abs().max() / (before.max() - before.min()) * 12))
    t.emit(b=b.grad, a=a.grad, poison_exact=t.digest(original[~finite]) == t.digest(restored[~finite]),
           poisoned_ratios=ratios, ratio=t.group_ratio(original[whole], restored[whole], 4))
"""


@pytest.mark.smoke
def test_one_infinity_spreads_no_further_than_in_stock(run_pair, close):
    pair = run_pair(INFINITY, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=2).json
    assert pleat["poison_exact"]
    assert len(pleat["poisoned_ratios"]) == 3 and max(pleat["poisoned_ratios"]) <= 1.001
    assert pleat["ratio"] <= 1
    close([pleat["a"], pleat["b"]], [stock["a"], stock["b"]], relative=0.2)


DROPOUT = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    leaf = t.noise(64, 512, seed=1).requires_grad_()
    out = []
    for layer in (torch.nn.Dropout(0.3), torch.nn.Dropout1d(0.5), torch.nn.AlphaDropout(0.2),
                  torch.nn.FeatureAlphaDropout(0.2)):
        leaf.grad = None
        h = layer(leaf * 1.0)
        loss = (h * t.noise(64, 512, seed=2)).sum()
        del h
        loss.backward()
        out.append(leaf.grad)
    t.emit(gradients=out)
"""


@pytest.mark.smoke
def test_dropout_masks_are_exact_at_four_bits(run_pair, identical):
    pair = run_pair(DROPOUT, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(released=4).json
    identical(pleat["gradients"], stock["gradients"])


TWO_VALUES = """
    import torch, pleat_test_support as t
    a, b = (t.noise(64, 512, seed=s).requires_grad_() for s in (1, 2))
    cases = {
        "two values": torch.where(t.noise(64, 512, seed=3) > 0, 0.125, -3.3),
        "scaled mask": (t.noise(64, 512, seed=4) > 0).float() / 0.7,
        "constant": torch.full((64, 512), 1 / 3),
        "zero": torch.zeros(64, 512),
    }
    same = {}
    for name, values in cases.items():
        x, w = a * 0 + values, b + 0
        y = x * w
        original = x.detach().clone()
        del x, w
        same[name] = torch.equal(original, y.grad_fn._saved_self)
    t.emit(same=same)
"""


def test_groups_of_at_most_two_values_are_exact(run_script):
    result = run_script(TWO_VALUES, conf=LOSSY).active(encoded=4)
    assert all(result.json["same"].values()), result.json["same"]


INTEGERS = """
    import torch, pleat_test_support as t
    a = t.noise(512, 64, seed=1).requires_grad_()
    generator = torch.Generator().manual_seed(3)
    out = {}
    for name, high in (("small", 3), ("byte", 200), ("short", 500)):
        index = torch.randint(0, high, (300,), generator=generator)
        y = a.index_select(0, index)
        expected = index.clone()
        del index
        out[name] = torch.equal(y.grad_fn._saved_index, expected)
        a.grad = None
        y.square().sum().backward()
    huge = torch.tensor([2**62, -2**62, 5, 0] * 100)
    index = torch.where(huge > 5, 1, 0)
    y = torch.gather(a, 1, index[:64].reshape(64, 1))
    expected = index[:64].reshape(64, 1).clone()
    del index
    out["gather"] = torch.equal(y.grad_fn._saved_index, expected)
    mask = t.noise(512, 64, seed=2) > 0
    y = torch.where(mask, a * 2, a * 3)
    expected = mask.clone()
    del mask
    out["mask"] = torch.equal(y.grad_fn._saved_condition, expected)
    pooled, where = torch.nn.functional.max_pool2d((a * 1).view(1, 8, 64, 64), 2, return_indices=True)
    expected = where.clone()
    del where
    out["pool"] = torch.equal(pooled.grad_fn._saved_result1, expected)
    t.emit(same=out)
"""


def test_indices_and_masks_are_exact(run_script):
    result = run_script(INTEGERS, conf=LOSSY).active(released=3, encoded=1)
    assert all(result.json["same"].values()), result.json["same"]


NEGATIVE_CONTROL = """
    import torch, pleat_test_support as t
    def pack(tensor):
        if not tensor.is_floating_point() or tensor.numel() < 2:
            return tensor.detach()
        tensor = tensor.detach()
        low, high = tensor.min(), tensor.max()
        step = ((high - low) / 3).clamp_min(1e-20)
        return ((tensor - low) / step).floor() * step + low       # two bits, and biased
    a, b = (t.noise(64, 512, seed=s).requires_grad_() for s in (1, 2))
    damage = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with damage:
        x, w = a + 1, b + 1
        y = x * w
    original = x.detach().clone()
    restored = y.grad_fn._saved_self
    y.sum().backward()
    t.emit(a=a.grad, ratio=t.group_ratio(original, restored, 4), mean=(restored - original).mean().item())
"""


def test_these_checks_notice_damaged_saved_tensors_and_an_idle_pleat(run_script, identical, close):
    """Negative control: hooks that damage, in a stock process, fail every check used above."""
    damaged = run_script(NEGATIVE_CONTROL, preload=False).check()
    sound = run_script(NEGATIVE_CONTROL.replace("with damage:", "if True:"), preload=False).check()
    assert damaged.json["ratio"] > 1 and sound.json["ratio"] == 0
    assert abs(damaged.json["mean"]) > 0.1
    with pytest.raises(AssertionError):
        identical(damaged.json, sound.json)
    with pytest.raises(AssertionError):
        close([damaged.json["a"]], [sound.json["a"]], relative=0.3)
    import conftest

    if not conftest.STOCK_ONLY:
        with pytest.raises(AssertionError, match="not loaded"):
            sound.active()


RELU = """
    import torch, pleat_test_support as t
    leaf = t.activations(t.noise(256, 512, seed=1))
    h = torch.relu(leaf * 1.0)
    loss = (h * t.noise(256, 512, seed=2)).sum()      # the factor needs no gradient: h is saved by relu only
    del h
    loss.backward()
    t.emit(gradient=leaf.grad)
"""


@pytest.mark.smoke
def test_the_gradient_of_relu_is_exact_at_four_bits(run_pair, identical):
    """It asks only which results are above zero: zeros stay zeros, the others stay above."""
    pair = run_pair(RELU, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1).json
    identical(pleat["gradient"], stock["gradient"])


SIDES = """
    import torch, pleat_test_support as t
    F = torch.nn.functional
    masked = {"relu": F.relu, "leaky_relu": F.leaky_relu, "hardtanh": F.hardtanh, "relu6": F.relu6, "abs": torch.abs,
              "clamp": lambda x: x.clamp(-0.5, 0.75), "threshold": lambda x: F.threshold(x, 0.25, 0.0)}
    before, values = {}, {}
    for seed, (name, activation) in enumerate(masked.items()):
        inner = torch.nn.Parameter(t.noise(64, 160, seed=seed))
        outer = torch.nn.Parameter(t.noise(160, 48, seed=seed + 100))
        shift = torch.nn.Parameter(t.noise(160, seed=seed + 200))
        # What reaches `shift` has met weights and masks only; what reaches `outer` has met values.
        activation(t.noise(96, 64, seed=seed + 300) @ inner + shift).matmul(outer).sum().backward()
        before[name], values[name] = shift.grad, outer.grad
    t.emit(before=before, values=values)
"""


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_the_side_of_an_element_survives_any_width(run_pair, bits):
    pair = run_pair(SIDES, conf=f"bits:{bits},min_bytes:0")
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=7).json
    assert_identical(pleat["before"], stock["before"])
    for name, values in stock["values"].items():
        assert STOCK_ONLY or not numpy.array_equal(pleat["values"][name], values), name
