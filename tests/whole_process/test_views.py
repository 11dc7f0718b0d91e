"""Layouts and storages: views, aliases, storages that move, shrink, or belong to someone else."""

import pytest

from conftest import LOSSLESS, LOSSY, short_without_loss

CONJ_AND_NEG = """
    import torch, pleat_test_support as t
    c = t.noise(64, 96, seed=1, dtype=torch.complex64).requires_grad_()
    r = t.activations(t.noise(64, 96, seed=2))
    z = c * 2
    conj = z.conj()                              # conj bit
    neg = (c * 3).conj().imag                    # neg bit, float32 view of a complex storage
    y1 = conj * c
    y2 = neg * (r * 2)
    bits = [y1.grad_fn._saved_self.is_conj(), y2.grad_fn._saved_self.is_neg()]
    own = torch._neg_view(r * 5)                 # neg bit on a float32 storage of its own
    y3 = own * (r * 1)
    expected = own.detach().clone().resolve_neg()
    of_floats = t.total(y2) + t.total(y3)
    del z, conj, neg, own
    got = y3.grad_fn._saved_self
    bits += [got.is_neg(), y1.grad_fn._saved_self.is_conj(), y2.grad_fn._saved_self.is_neg()]
    ratio = t.group_ratio(expected, got.detach().resolve_neg(), 4)
    c_only, = torch.autograd.grad(y1.real.sum() + y1.imag.sum(), c)
    del y2, y3, got
    of_floats.backward()
    t.emit(bits=bits, complex=c_only, r=r.grad, ratio=ratio)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_conj_and_neg_views_are_restored_unchanged(run_pair, identical, close, conf):
    pair = run_pair(short_without_loss(CONJ_AND_NEG, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1).json
    assert stock["bits"] == [True] * 5
    identical(pleat["bits"], stock["bits"])
    identical(pleat["complex"], stock["complex"])
    assert pleat["ratio"] <= (0 if conf == LOSSLESS else 1)
    if conf == LOSSLESS:
        identical(pleat["r"], stock["r"])
    else:
        close([pleat["r"]], [stock["r"]], relative=0.2)


LAYOUTS = """
    import torch, pleat_test_support as t
    a, b = (t.activations(t.noise(24, 32, 40, seed=s)) for s in (1, 2))
    views = {
        "transposed": lambda h: h.transpose(0, 2),
        "row": lambda h: h[3],
        "column": lambda h: h[:, 5],
        "every second": lambda h: h[::2, :, ::3],
        "flipped": lambda h: h.flip(1),
        "diagonal": lambda h: h.diagonal(0, 0, 1),
        "windows": lambda h: h.unfold(2, 8, 4),
        "expanded": lambda h: h[:, :1].expand(24, 32, 40),
        "expanded new": lambda h: h[0, 0].expand(50, 40),
        "strided": lambda h: h.reshape(-1).as_strided((10, 20), (7, 3), 11),
        "overlapping": lambda h: h.reshape(-1).as_strided((100, 20), (1, 1), 5),
        "channels last": lambda h: h[None].contiguous(memory_format=torch.channels_last),
        "scalar": lambda h: h[0, 0, 0],
        "empty": lambda h: h[:0],
    }
    out = {}
    for name, view in views.items():
        a.grad = b.grad = None
        x, w = view(a + 1), view(b * 2)
        y = x * w
        shape = (x.size(), x.stride(), x.storage_offset())
        original = x.detach().clone()
        loss = t.total(y)
        del x, w
        got = y.grad_fn._saved_self
        same_layout = shape == (got.size(), got.stride(), got.storage_offset())
        span = (original.max() - original.min()).item() if original.numel() else 0
        error = (got - original).abs().max().item() if original.numel() else 0
        del got
        loss.backward()
        out[name] = [bool(same_layout), error, span, a.grad, b.grad]
    t.emit(out=out)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY, LOSSY + ",place:inplace", LOSSLESS + ",place:inplace"])
def test_every_strided_layout_is_restored_with_its_layout(run_pair, identical, close, conf):
    pair = run_pair(short_without_loss(LAYOUTS, conf), conf=conf)
    stock, pleat = pair.stock.check().json["out"], pair.pleat.active(encoded=10).json["out"]
    for name, (same_layout, error, span, *grads) in pleat.items():
        assert same_layout, f"{name}: sizes, strides or offset changed"
        if "lossless" in conf:
            assert error == 0, name
            identical(grads, stock[name][3:])
        else:
            # views that leave holes share groups with covered bytes only
            assert error <= max(span, 1e-6) / 15 * 1.001, f"{name}: error {error}, range {span}"
            close(grads, stock[name][3:], relative=0.2)


SHARED = """
    import torch, pleat_test_support as t
    a = t.activations(t.noise(256, 256, seed=1))
    w = [torch.nn.Parameter(t.noise(256, 128, seed=s)) for s in (2, 3)]
    v = torch.nn.Parameter(t.noise(256, 256, seed=4))
    before = t.stats()
    h = a + 1                                    # one storage ...
    y1 = h[:, :128] * w[0]
    y2 = h[:, 128:] * w[1]
    y3 = h.t() @ v
    y4 = h * v
    y5 = t.total(h.view(128, 512).tanh()) + t.total(h * h)
    loss = t.total(y1) + t.total(y2) + y3.sum() + t.total(y4) + y5
    tagged = t.count("tagged")
    original = h.detach().clone()
    for _ in range(9):
        v * 1                                    # so that no tanh and no h * h waits for a pole
    middle = t.stats()
    del h                                        # ... saved by many nodes, released once
    after = t.stats()
    one, two = y4.grad_fn._saved_self, y1.grad_fn._saved_self
    shared = one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr()
    ratio = t.group_ratio(original, one, 4)
    del one, two
    del y1, y2, y3, y4, y5
    loss.backward()
    t.emit(before=before, middle=middle, after=after, shared=shared, ratio=ratio, a=a.grad, w=[p.grad for p in w], v=v.grad)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_a_storage_saved_by_several_nodes_is_compressed_once(run_pair, identical, close, conf):
    pair = run_pair(short_without_loss(SHARED, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1).json
    assert pleat["shared"] and stock["shared"]
    if conf == LOSSLESS:
        identical([pleat["a"], pleat["w"], pleat["v"]], [stock["a"], stock["w"], stock["v"]])
    else:
        close([pleat["a"], pleat["w"], pleat["v"]], [stock["a"], stock["w"], stock["v"]], relative=0.2)
    if pair.pleat.stats is None:
        return
    middle, after = pleat["middle"]["records"], pleat["after"]["records"]
    assert after["released"] - middle["released"] == 1
    assert after["encoded"] - middle["encoded"] == 1
    payload = after["payload_bytes"] - middle["payload_bytes"]
    size = 256 * 256 * 4
    assert payload <= (size * 1.05 if conf == LOSSLESS else size / 7), payload


GAPS = """
    import time, torch, pleat_test_support as t
    wide = 2048
    leaf, v = t.activations(t.noise(64, wide, seed=1)), torch.nn.Parameter(t.noise(64, seed=2))
    h = leaf + 1
    start = time.process_time()
    total = t.total(torch.stack([(h[:, column] * v).sum() for column in range(0, wide, 2)]))
    seconds = time.process_time() - start
    del h
    total.backward()
    t.emit(seconds=seconds, grads=[leaf.grad, v.grad])
"""


@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_views_with_gaps_cost_as_much_as_in_stock(run_pair, identical, close, conf):
    pair = run_pair(short_without_loss(GAPS, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active().json
    if conf == LOSSLESS:
        identical(pleat["grads"], stock["grads"])
    else:
        close(pleat["grads"], stock["grads"], relative=0.1)
    # CPU seconds; 15 if each view is compared with all earlier views.
    assert pleat["seconds"] < 1 + 10 * stock["seconds"]


EXPANDED = """
    import torch, pleat_test_support as t
    a = t.activations(t.noise(1, 4096, seed=1))
    w = torch.nn.Parameter(t.noise(500, 1, seed=2))
    x = (a + 1).expand(500, 4096)
    y = x * w
    loss = t.total(y)
    middle = t.stats()
    del x
    after = t.stats()
    loss.backward()
    t.emit(middle=middle, after=after, a=a.grad, w=w.grad)
"""


def test_an_expanded_view_costs_its_storage_not_its_shape(run_pair, close):
    pair = run_pair(EXPANDED, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1).json
    close([pleat["a"], pleat["w"]], [stock["a"], stock["w"]], relative=0.2)
    if pair.pleat.stats is not None:
        middle, after = pleat["middle"]["records"], pleat["after"]["records"]
        assert after["source_bytes"] - middle["source_bytes"] == 4096 * 4
        assert 0 < after["payload_bytes"] - middle["payload_bytes"] <= 4096 * 4 / 6


TWO_TYPES = """
    import torch, pleat_test_support as t
    a = t.noise(64, 96, 2, seed=1).requires_grad_()
    b = t.noise(64, 96, 2, seed=2).requires_grad_()
    c = t.noise(64, 96, seed=3, dtype=torch.complex64).requires_grad_()
    h = a + 1
    y1 = h * b                                    # float32 ...
    y2 = torch.view_as_complex(h) * c             # ... and complex64 on one storage
    expected = h.detach().clone()
    del h
    same = torch.equal(y1.grad_fn._saved_self, expected)
    loss = y1.sum() + y2.real.sum() + y2.imag.sum()
    del y1, y2
    loss.backward()
    t.emit(same=same, grads=[a.grad, b.grad, c.grad])
"""


@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_two_types_on_one_storage_are_exact(run_pair, identical, conf):
    pair = run_pair(TWO_TYPES, conf=conf)
    pair.stock.check()
    assert pair.pleat.active(released=1, encoded=0).json["same"]
    identical(pair.pleat.json, pair.stock.json)


RESIZED = """
    import torch, pleat_test_support as t
    a = t.noise(64, 96, seed=1).requires_grad_()
    b = t.noise(64, 96, seed=2).requires_grad_()
    out = {}
    # FSDP's way: the storage is emptied after forward and filled again before backward.
    x = a + 1
    y = x * (b + 0)
    backup = x.detach().clone()
    size = x.untyped_storage().size()
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(size)
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(x):
        x.copy_(backup)
    gb, = torch.autograd.grad(y.sum(), b)
    out["regrown, alive"] = gb
    # the same, and the tensor dies between refill and backward
    x = a + 1
    held = b * 1
    y = x * held
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(size)
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(x):
        x.copy_(backup)
    del x
    gb, = torch.autograd.grad(y.sum(), b)
    out["regrown, dead"] = [(gb - backup).abs().max().item() <= (backup.max() - backup.min()).item() / 15 * 1.001]
    # a parameter emptied and refilled (FSDP1)
    weight = torch.nn.Parameter(t.noise(96, 96, seed=3))
    y = (a + 1) @ weight
    backup = weight.detach().clone()
    size = weight.untyped_storage().size()
    weight.untyped_storage().resize_(0)
    weight.untyped_storage().resize_(size)
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(weight):
        weight.copy_(backup)
    ga, = torch.autograd.grad(y.sum(), a)
    out["parameter"] = ga
    # emptied for good, and gone: freeing the graph must not crash
    x = a + 1
    y = x * (b + 0)
    x.untyped_storage().resize_(0)
    del x, y
    # grown before it dies
    x, held = a + 1, b * 1
    y = x * held
    original = x.detach().clone()
    x.untyped_storage().resize_(size * 4)
    del x
    gb, = torch.autograd.grad(y.sum(), b)
    out["grown, dead"] = [(gb - original).abs().max().item() <= (original.max() - original.min()).item() / 15 * 1.001]
    t.emit(out=out)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY, LOSSY + ",place:inplace"])
def test_a_storage_emptied_and_refilled_gives_its_new_bytes(run_pair, identical, conf):
    pair = run_pair(short_without_loss(RESIZED, conf), conf=conf)
    pair.stock.check()
    identical(pair.pleat.active(encoded=1 if conf == LOSSLESS else 0).json["out"], pair.stock.json["out"])


SWAPPED = """
    import torch, pleat_test_support as t
    a = t.noise(64, 96, seed=1).requires_grad_()
    out = {}
    weight = torch.nn.Parameter(t.noise(96, 96, seed=2))
    y = (a + 1) @ weight
    weight.data = t.noise(96, 96, seed=3)            # a parameter's data swapped between the passes
    out["parameter"], = torch.autograd.grad(y.sum(), a)
    b = t.noise(64, 96, seed=4).requires_grad_()
    x = a + 1
    y = x * b
    x.data = t.noise(64, 96, seed=5)                 # an activation's, alive at unpack
    out["activation"], = torch.autograd.grad(y.sum(), b)
    x = a + 1
    y = x * b
    x.data = t.noise(64, 96, seed=6)                 # ... and dead by then
    del x
    out["dead activation"], = torch.autograd.grad(y.sum(), b)
    x = a + 1
    y, z = x * b, x.detach() * b                     # of two that were saved, one is swapped
    x.data = t.noise(64, 96, seed=7)
    del x
    out["one of two"], = torch.autograd.grad((y + z).sum(), b)
    t.emit(out=out)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_a_swapped_data_gives_the_same_as_in_stock(run_pair, identical, conf):
    pair = run_pair(short_without_loss(SWAPPED, conf), conf=conf)
    pair.stock.check()
    identical(pair.pleat.check().json["out"], pair.stock.json["out"])
    assert pair.pleat.stats is None or (pair.pleat.records("swapped") > 0 and pair.pleat.records("kept") > 0)


SWAPPED_OUTPUT = """
    import gc, weakref, torch, pleat_test_support as t
    class Canary:
        pass
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)                     # saved by its own node, and by who uses it
            ctx.canary = Canary()
            alive.append(weakref.ref(ctx.canary))
            return y
        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]
    alive = []
    a = t.noise(64, 96, seed=1).requires_grad_()
    b = t.noise(64, 96, seed=2).requires_grad_()
    def step(backward):
        y = Exp.apply(a)
        z = (y * b).sum()
        y.data = t.noise(64, 96, seed=3)
        del y
        return torch.autograd.grad(z, [a, b], retain_graph=True) if backward else None
    out = step(True)
    step(False)
    gc.collect()
    x = a * 1
    z = (x * b).sum()
    x.data = torch.empty(0)                              # who swaps it for nothing wants the memory
    raw = t.stats()["bytes"]["saved_raw"]["current"] + t.stats()["bytes"]["payload"]["current"] if t.stats() else 0
    t.emit(out=out, alive=[canary() is not None for canary in alive], raw=raw)
"""


@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_a_swapped_output_keeps_no_graph_and_no_bytes(run_pair, identical, conf):
    pair = run_pair(short_without_loss(SWAPPED_OUTPUT, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.check().json
    assert stock["alive"] == pleat["alive"] == [False, False]
    assert pleat["raw"] == 0
    identical(pleat["out"][1], stock["out"][1])
    if conf == LOSSLESS:
        identical(pleat["out"], stock["out"])


FOREIGN = """
    import numpy, torch, pleat_test_support as t
    b = t.activations(t.noise(64, 96, seed=1))
    out = {}
    def through(x):
        y = x.requires_grad_() * b if x.is_leaf else x * b
        del x
        g, = torch.autograd.grad(t.total(y), b)
        return g
    array = numpy.random.RandomState(0).randn(64, 96).astype("float32")
    out["numpy"] = through(torch.from_numpy(array))
    out["numpy view"] = through(torch.from_numpy(array).requires_grad_()[:])   # no leaf
    shared = t.noise(64, 96, seed=2).share_memory_()
    out["shared"] = through(shared)
    x = b + 1
    view = x.detach().numpy()                       # someone else reads our bytes after the release
    before = view.copy()
    y = x * (b * 2)
    del x
    t.total(y).backward()
    out["numpy sees the same bytes"] = [bool((view == before).all())]
    capsule = torch.utils.dlpack.to_dlpack(b.detach() + 3)
    out["dlpack"] = through(torch.from_dlpack(torch.utils.dlpack.from_dlpack(capsule)))
    x = torch.frombuffer(bytearray(64 * 96 * 4), dtype=torch.float32).reshape(64, 96)
    out["buffer"] = through(x)
    t.emit(out=out)
"""


def test_memory_of_others_is_left_alone(run_pair, identical):
    pair = run_pair(FOREIGN, conf=LOSSY)
    identical(pair.pleat.active(encoded=1).json["out"], pair.stock.check().json["out"])


LAZY_COPY = """
    import torch, pleat_test_support as t
    a = t.noise(64, 96, seed=1).requires_grad_()
    b = t.noise(64, 96, seed=2).requires_grad_()
    x = a + 1
    lazy = torch._lazy_clone(x)                     # copy on write: two tensors, one storage
    y = x * b
    z = lazy * b
    with torch.no_grad():
        other = lazy.detach()
    original = x.detach().clone()
    del x, lazy
    g, = torch.autograd.grad(y.sum() + z.sum(), b)
    t.emit(close=((g - 2 * original).abs().max() <= 2 * (original.max() - original.min()) / 15 * 1.001).item())
"""


def test_copy_on_write_storages_survive(run_pair):
    pair = run_pair(LAZY_COPY, conf=LOSSY)
    assert pair.stock.check().json["close"] and pair.pleat.check().json["close"]
