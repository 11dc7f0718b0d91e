"""Gradients of activations are written over the incoming gradients, if no code can observe that."""

import pytest

from conftest import LOSSLESS, OFF, short_without_loss

FORMULAS = """
    import torch, pleat_test_support as t
    from torch.nn import functional as F
    dtype = getattr(torch, DTYPE)
    def reused():
        now = t.stats()
        return now["gradients"]["reused"] if now else 0
    dropout = (t.noise(32, 6, 40, seed=7) > 0).to(dtype)
    functions = {
        "gelu": F.gelu,
        "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu,
        "relu": F.relu,
        "threshold": lambda x: F.threshold(x, 0.1, 0.2),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "leaky_relu": F.leaky_relu,
        "hardtanh": F.hardtanh,
        "elu": F.elu,
        "celu": lambda x: F.celu(x, 2.0),
        "selu": F.selu,
        "softmax": lambda x: x.softmax(-1),
        "log_softmax": lambda x: x.log_softmax(-1),
        "factor": lambda x: x * dropout,
        "row of factors": lambda x: x * dropout[0, 0],
        "planes of factors": lambda x: x * dropout[:, :1],
        "number": lambda x: x * 0.3,
        "divisor": lambda x: x / 0.3,
        "divisors": lambda x: x / (dropout + 1),
    }
    weight = t.noise(40, 40, seed=3).to(dtype)
    results, times = {}, {}
    for name, function in functions.items():
        for layout in ("lines", "view", "permuted"):
            x = t.noise(32, 6, 40, seed=1).to(dtype).requires_grad_()
            h = (x * 1).permute(2, 0, 1).contiguous().permute(1, 2, 0) if layout == "permuted" else x + 0
            y = function(h)
            # the gradient of a matrix product, of a function that reads its result, or a view of one
            z = y.view(-1, 40) @ weight if layout == "view" else torch.sin(y) * torch.cos(y)
            before = reused()
            z.square().sum().backward()
            results[f"{name}, {layout}"] = [x.grad, list(x.grad.stride())]
            times[f"{name}, {layout}"] = reused() - before
    t.emit(results=results, times=times)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_every_formula_gives_the_bits_of_stock(run_pair, identical, dtype):
    script = short_without_loss(FORMULAS.replace("DTYPE", repr(dtype)), LOSSLESS)
    pair = run_pair(script, conf=LOSSLESS)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=0 if dtype == "float64" else 50).json
    identical(pleat["results"], stock["results"])
    apart = run_pair(script, conf=LOSSLESS + ",reuse_gradients:0").pleat
    never = apart.check().json["times"]
    assert set(never.values()) == {0}
    # sin * cos next to it makes two gradients of one, and takes none over
    for name in stock["results"]:
        layout = name.rsplit(", ")[-1]
        rows = name.startswith(("softmax", "log_softmax"))
        expected = 0 if rows and layout == "permuted" else 1
        assert pleat["times"][name] >= expected, name


KEEPERS = """
    import torch, numpy, pleat_test_support as t
    from torch.nn import functional as F
    results, times = {}, {}
    weight = t.noise(64, 64, seed=3)
    def leaf(seed=1):
        return t.noise(64, 64, seed=seed).requires_grad_()
    def reused():
        now = t.stats()
        return now["gradients"]["reused"] if now else 0

    # A tensor that Python has seen has its Python object for a second owner: these are never reused.
    class Passes(torch.autograd.Function):               # its gradient is kept by `keep`, then handed on
        @staticmethod
        def forward(ctx, x, keep):
            ctx.keep = keep
            return x.clone()
        @staticmethod
        def backward(ctx, g):
            return ctx.keep(g), None

    kept = []
    def keep_the(make):
        def keep(g):
            g = g * 1
            kept.append(make(g))
            return g
        return keep
    memory = numpy.ones((64, 64), dtype=numpy.float32)
    keepers = {
        "tensor": keep_the(lambda g: g),
        "view": keep_the(lambda g: g.view(-1)),
        "detached": keep_the(lambda g: g.detach()),
        "row": keep_the(lambda g: g[3]),
        "transposed": keep_the(lambda g: g.t()),
        "numpy": keep_the(lambda g: g.numpy()),
        "storage": keep_the(lambda g: g.untyped_storage()),
        "dlpack": keep_the(lambda g: torch.utils.dlpack.to_dlpack(g)),
        "half of a pair": lambda g: kept.append(torch.cat([g, g])) or kept[-1][:64],
        "expanded": lambda g: kept.append(g[:1] * 1) or kept[-1].expand(64, 64),
        "memory of numpy's": lambda g: kept.append(torch.from_numpy(memory)) or torch.from_numpy(memory),
        "list": lambda g: kept.append([g]) or g,
    }
    for name, keep in keepers.items():
        for function in (F.gelu, torch.tanh, lambda x: x * 0.3, lambda x: x.softmax(-1)):
            kept.clear()
            x = leaf()
            before = reused()
            (Passes.apply(function(x + 0), keep) @ weight).square().sum().backward()
            value = kept[0]
            if isinstance(value, list):
                value = value[0]
            if name == "dlpack":
                value = torch.utils.dlpack.from_dlpack(value)
            elif name == "storage":
                value = torch.empty(0).set_(value)
            elif name == "numpy":
                value = torch.from_numpy(value)
            results.setdefault(name, []).append([x.grad, value.clone()])
            times[name] = times.get(name, 0) + reused() - before

    def hooked(name, hook, function=F.gelu):
        x = leaf()
        h = x + 0
        y = function(h)
        seen = hook(x, h, y) or []
        before = reused()
        (y @ weight).square().sum().backward()
        results[name] = [x.grad, [s.clone() for s in seen]]
        times[name] = reused() - before
    def tensor_hook(x, h, y):
        seen = []
        y.register_hook(lambda g: seen.append(g))
        return seen
    def node_prehook(x, h, y):
        seen = []
        y.grad_fn.register_prehook(lambda gs: seen.append(gs[0]))
        return seen
    def node_hook(x, h, y):                              # sees what came in beside what goes out
        seen = []
        y.grad_fn.register_hook(lambda gi, go: seen.extend([*gi, *go]))
        return seen
    hooked("tensor hook", tensor_hook)
    hooked("prehook", node_prehook)
    hooked("node hook", node_hook)

    x = leaf(); y = F.gelu(x + 0); y.retain_grad()
    (y @ weight).square().sum().backward()
    results["retained"] = [x.grad, y.grad]
    x = leaf(); h = x + 0; y = F.gelu(h)
    results["asked for"] = list(torch.autograd.grad((y @ weight).square().sum(), [x, h, y]))
    x = leaf(); y = F.gelu(x + 0); loss = (y @ weight).square().sum()
    first = torch.autograd.grad(loss, x, retain_graph=True)[0]
    results["twice"] = [first, torch.autograd.grad(loss, x)[0]]
    x = leaf(); given = t.noise(64, 64, seed=9)
    y = F.gelu(x + 0)
    y.backward(given)
    results["given"] = [x.grad, given]
    x = leaf(); y = F.gelu(x + 0)
    (torch.tanh(y).square().sum() + (F.silu(y) @ weight).square().sum() + (y + y * 2).sum()).backward()
    results["branches"] = [x.grad]
    for name, function in (("gelu", F.gelu), ("number", lambda x: x * 0.3), ("softmax", lambda x: x.softmax(-1))):
        x, y = leaf(), leaf(2)                           # one of the two gets a view of what the other gets
        (function(x + 0).view(-1) + function(y + 0).view(-1)).square().sum().backward()
        z, w = leaf(3), leaf(4)
        (function(z + 0) + function((w + 0).t().contiguous()).t()).square().sum().backward()
        results[f"views beside, {name}"] = [x.grad, y.grad, z.grad, w.grad]
        x, y, z = leaf(), leaf(2), leaf(3)
        joined = torch.cat([function(x + 0), function(y + 0), torch.stack([function(z + 0)[0]] * 2)])
        (joined * joined.detach().roll(1, 0)).sum().backward()
        results[f"joined, {name}"] = [x.grad, y.grad, z.grad]
        x, y = leaf(), leaf(2)
        (function(x + 0).sum() + (function(y + 0).sum(0) * 2 + function(y * 2).mean(1)).square().sum()).backward()
        results[f"expanded, {name}"] = [x.grad, y.grad]
        x = leaf()
        first, second = function(x + 0).chunk(2)
        (function(first).square() + function(second) * 3).sum().backward()
        results[f"in halves, {name}"] = [x.grad]
    x = leaf(); h = x + 0
    (h + F.gelu(h + F.gelu(h))).square().sum().backward()
    results["residuals"] = [x.grad]
    x = leaf(); p = torch.zeros_like(x).requires_grad_()     # the gradient becomes .grad as it is
    F.gelu(F.gelu(x + 0) + p).square().sum().backward()
    results["parameter beside it"] = [x.grad, p.grad]
    x = leaf(); y = F.gelu(x + 0)
    g, = torch.autograd.grad((y @ weight).square().sum(), x, create_graph=True)
    g.square().sum().backward()
    results["twice differentiated"] = [g.detach(), x.grad]
    x = leaf(); y = leaf(2)
    (F.gelu(x + 0) * torch.tanh(y + 0)).square().sum().backward()
    results["both factors"] = [x.grad, y.grad]
    t.emit(results=results, times=times)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, OFF])
def test_a_gradient_with_another_reader_is_not_overwritten(run_pair, identical, conf):
    pair = run_pair(short_without_loss(KEEPERS, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=0).json
    identical(pleat["results"], stock["results"])
    assert len(pleat["times"]) == 15
    assert set(pleat["times"].values()) == {0}, pleat["times"]


PEAK = """
    import torch, pleat_test_support as t
    hidden = torch.nn.Linear(64, 4096)
    x = t.noise(512, 64, seed=1)
    def peak_of_backward():
        loss = hidden(x).relu().relu().relu().sum()      # one gradient for all elements, so of no size
        t.bridge().library.pleat_reset_peaks()
        loss.backward()
        return t.stats()["bytes"]["requested"]["peak"]
    peaks = []
    for reuse in (0, 1, 0, 1):
        t.bridge().enable(f"reuse_gradients:{reuse}")
        peaks.append(peak_of_backward())
    t.emit(peaks=peaks, tensor=512 * 4096 * 4)
"""


def test_a_tensor_less_at_the_peak_of_backward(run_script):
    seen = run_script(PEAK, conf="bits:4").active().json
    for without, reused in zip(seen["peaks"][::2], seen["peaks"][1::2]):
        assert without - reused >= 0.7 * seen["tensor"]   # one payload more is there one formula earlier


MULTIPLIERS = """
    import torch, pleat_test_support as t
    import torch.autograd.forward_ad as forward_ad
    from torch.utils.checkpoint import checkpoint
    results = {}
    weight = t.noise(64, 64, seed=3)
    def leaf(seed=1):
        return t.noise(64, 64, seed=seed).requires_grad_()
    operations = {
        "product": (lambda x: x * 0.3, lambda m: m * 0.5),
        "quotient": (lambda x: x / 0.3, lambda m: m / 2),
        "gelu": (torch.nn.functional.gelu, lambda m: torch.ops.aten.gelu_backward(m, m)),
        "softmax": (lambda x: x.softmax(-1), lambda m: torch.ops.aten._softmax_backward_data(m, m, 1, m.dtype)),
    }
    for name, (function, compute) in operations.items():
        # While a node counts as the one that runs, hooks work with tensors that are only Python's.
        def once(place, hang):
            x, mine = leaf(), t.noise(64, 64, seed=8)
            h = x + 0
            y = function(h)
            seen = []
            hang(x, h, y, lambda *_: seen.append(compute(mine)))
            (y @ weight).square().sum().backward()
            results[f"{name}, {place}"] = [x.grad, mine, *seen]
        once("tensor hook", lambda x, h, y, hook: y.register_hook(hook))
        once("hook of the argument", lambda x, h, y, hook: h.register_hook(hook))
        once("prehook", lambda x, h, y, hook: y.grad_fn.register_prehook(hook))
        once("node hook", lambda x, h, y, hook: y.grad_fn.register_hook(hook))
        once("hook of many", lambda x, h, y, hook: torch.autograd.graph.register_multi_grad_hook([y], hook))
        once("accumulated", lambda x, h, y, hook: x.register_post_accumulate_grad_hook(hook))

        x = leaf()
        y = function(x + 0)
        def temporary(g):
            a = g * 1
            b = compute(a)
            return a + b
        y.register_hook(temporary)
        (y @ weight).square().sum().backward()
        results[f"{name}, temporaries"] = [x.grad]

        x, factor = leaf(), t.noise(64, 64, seed=5)
        with torch.autograd.graph.saved_tensors_hooks(lambda v: v.detach() / 4, lambda p: compute(p)):
            y = function((x + 0) * factor)
        loss = (y @ weight).square().sum()
        results[f"{name}, unpacked"] = [torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(3)]

        x, state = leaf(), {"mine": t.noise(64, 64, seed=8)}
        def block(x):
            with torch.no_grad():
                state["made"] = compute(state["mine"])
            return function(x + 0) * (factor * 1.0)
        (checkpoint(block, x, use_reentrant=False) @ weight).square().sum().backward()
        results[f"{name}, recomputed"] = [x.grad, state["mine"], state["made"]]

        x, tangent = leaf(), t.noise(64, 64, seed=2)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(factor, tangent)
            z = function(x + 0) @ (weight + dual)
            g, = torch.autograd.grad(z.sum(), x)
            results[f"{name}, tangents"] = [forward_ad.unpack_dual(g).primal, forward_ad.unpack_dual(g).tangent]
            g, = torch.autograd.grad((function(x + 0) * dual * 2).sum(), x)
            results[f"{name}, tangents of a factor"] = [forward_ad.unpack_dual(g).primal, forward_ad.unpack_dual(g).tangent]

        x = leaf()
        loss = (function(x) @ weight).square().sum()
        with torch.inference_mode():
            loss.backward()
        y = leaf()
        g, = torch.autograd.grad((function(y) @ weight).square().sum(), y)
        results[f"{name}, what it is"] = [x.grad.is_inference(), g.is_inference(), g._version, g.is_leaf, g._is_view()]

        single = []
        for shape in ((64, 1), (1, 64), (4, 1, 16), (4, 16, 1, 1), (1, 16, 5, 5), (1, 1, 1)):
            for other in (None, torch.full((), 2.0), t.noise(shape[-1], seed=6), t.noise(*shape[::-1], seed=7).permute(*range(len(shape))[::-1])):
                for rest in (lambda v: v.sin(), lambda v: v.transpose(0, -1).double(), lambda v: v.transpose(0, 1) @ t.noise(*shape, seed=4)):
                    x = t.noise(*shape, seed=1).requires_grad_()
                    y = function(x + 0)
                    y = y if other is None else y * other if name != "quotient" else y / (other.abs() + 1)
                    try:
                        rest(y).square().sum().backward()
                    except RuntimeError:                 # shapes that do not go together
                        continue
                    single.append([x.grad, list(x.grad.stride())])
        results[f"{name}, dimensions of size one"] = single
    t.emit(results=results, reused=(t.stats() or {"gradients": {"reused": 1}})["gradients"]["reused"])
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, OFF])
def test_code_that_runs_during_a_node_keeps_its_operands(run_pair, identical, conf):
    pair = run_pair(short_without_loss(MULTIPLIERS, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=0).json
    identical(pleat["results"], stock["results"])
    assert pleat["reused"] > 0
