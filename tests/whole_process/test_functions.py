"""Functions of users: their saves equal stock's in identity, bytes and version."""

import pytest

from conftest import LOSSLESS, LOSSY, short_without_loss

CUSTOM_FUNCTION = """
    import torch, pleat_test_support as t
    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, mask):
            out = (x @ weight.t()).tanh()
            ctx.save_for_backward(weight, x, out, mask, None)
            return out
        @staticmethod
        def backward(ctx, g):
            weight_, x, out, mask, nothing = ctx.saved_tensors
            log.append([weight_ is weight, weight_.fused_grad if hasattr(weight_, "fused_grad") else None,
                        nothing is None, mask.dtype == torch.bool, weight_.is_leaf, t.digest(weight_), t.digest(mask)])
            g = g * (1 - out * out) * mask
            return g @ weight_, g.t() @ x, None
    log = []
    weight = torch.nn.Parameter(t.noise(48, 64, seed=1) * 0.1)
    weight.fused_grad = "an attribute of the user"
    frozen = t.noise(48, 64, seed=5)
    leaf = t.activations(t.noise(128, 64, seed=2))
    mask = t.noise(128, 48, seed=3) > 0
    h = leaf * 1.5
    out = Linear.apply(h, weight, mask)
    del h
    loss = (out * t.noise(128, 48, seed=4)).sum()
    del out
    loss.backward()
    t.emit(log=log, weight=weight.grad, leaf=leaf.grad)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY + ",trust:+Linear"])
def test_a_custom_function_gets_the_very_parameter_it_saved(run_pair, identical, close, conf):
    pair = run_pair(short_without_loss(CUSTOM_FUNCTION, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1 if conf == LOSSLESS else 2).json
    assert stock["log"][0][:2] == [True, "an attribute of the user"]
    identical(pleat["log"], stock["log"])
    if conf == LOSSLESS:
        identical(pleat, stock)
    else:
        close([pleat["weight"], pleat["leaf"]], [stock["weight"], stock["leaf"]], relative=0.4)


WRITTEN = """
    import torch, pleat_test_support as t
    class Statistics(torch.autograd.Function):           # collects them in a buffer, in backward
        @staticmethod
        def forward(ctx, x, buffer):
            ctx.save_for_backward(buffer)
            return x.clone()
        @staticmethod
        def backward(ctx, g):
            buffer, = ctx.saved_tensors
            buffer.add_(g.abs())
            return g, None
    class Scratch(torch.autograd.Function):              # works in what it saved, then wants it again
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x
        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            x.mul_(3)
            if failing:
                raise ValueError("once")
            del x
            x, = ctx.saved_tensors
            return 2 * x * g
    class Parts(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            ctx.save_for_backward(q, k, v)
            return (q * k + v).sum()
        @staticmethod
        def backward(ctx, g):
            parts = ctx.saved_tensors
            storages.append(len({x.untyped_storage().data_ptr() for x in parts}))
            return g * parts[1], g * parts[0], g.expand_as(parts[2])
    leaf = t.activations(t.noise(64, 96, seed=1))
    out, storages = {}, []
    for name, view in {"itself": lambda b: b, "view": lambda b: b.view(64, 96), "detached": lambda b: b.detach(),
                       "data": lambda b: b.data, "slice": lambda b: b[:]}.items():
        buffers = [torch.zeros(64, 96) for _ in range(3)]
        h = leaf * 1
        for buffer in buffers:
            h = Statistics.apply(h, view(buffer))        # the view is gone before the backward pass
        h.sum().backward()
        out[f"buffer as {name}"] = [b.sum() for b in buffers]
    messages, off = [], []
    for dtype in (torch.float32, torch.float64):
        for failing in (False, True):
            y = Scratch.apply((leaf * 1).to(dtype)).sum()
            for _ in range(2 if failing else 1):
                leaf.grad = None
                try:
                    y.backward()
                    messages.append(None)
                    off.append(((leaf.grad - 2 * leaf).norm() / leaf.norm()).item())
                except (RuntimeError, ValueError) as error:
                    messages.append(str(error).partition(":")[0])
                failing = False
    leaf.grad = None
    wide = t.activations(t.noise(64, 3 * 96, seed=2))
    loss = Parts.apply(*(wide * 1).chunk(3, -1))
    loss.backward()
    rows = [Parts.apply(row, row * 2, row * 3) for row in (wide * 1).unbind(0)]
    sum(rows).backward()
    a = leaf * 1
    y = a * (leaf * 2)
    a.mul_(5)                                            # no check is due for who registers hooks
    y.grad_fn._raw_saved_self.register_hooks(lambda x: x, lambda x: x)
    y.sum().backward()
    t.emit(out=out, messages=messages, off=off, storages=storages[:1], wide=wide.grad, leaf=leaf.grad)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY + ",trust:+Scratch|+Parts"])
def test_a_function_can_write_to_its_saved_tensor(run_pair, identical, close, conf):
    pair = run_pair(short_without_loss(WRITTEN, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1).json
    assert stock["out"]["buffer as data"][0] > 0 and stock["storages"] == [1]
    identical([pleat["out"], pleat["storages"]], [stock["out"], stock["storages"]])
    # Stock wants none of it again; a payload can be decoded again, and then it is right.
    assert sum("inplace operation" in (m or "") for m in stock["messages"]) == 4
    assert all(m is None or m == s for m, s in zip(pleat["messages"], stock["messages"], strict=True))
    assert all(off < (1e-6 if conf == LOSSLESS else 0.4) for off in pleat["off"])
    if conf == LOSSLESS:
        identical([pleat["wide"], pleat["leaf"]], [stock["wide"], stock["leaf"]])
    else:
        close([pleat["wide"], pleat["leaf"]], [stock["wide"], stock["leaf"]], relative=0.2)


LOOKED_INTO = """
    import threading, torch, pleat_test_support as t
    def leaf(seed):
        return t.noise(64, 80, seed=seed).requires_grad_()
    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, work, *saved):
            ctx.save_for_backward(*saved)
            ctx.work = work
            return x * 1
        @staticmethod
        def backward(ctx, g):
            return ctx.work(ctx, g), None, *[None] * (len(ctx.needs_input_grad) - 2)
    out = {}
    def many(ctx, g):                                    # nodes and records come and go, tensors of them stay
        kept, x = [], leaf(1)
        for i in range(40):
            with torch.enable_grad():
                h = torch.full((64, 80), float(i))
                y = Saves.apply(x, None, h)
                del h
            kept.append(y.grad_fn.saved_tensors[0])
            del y
        out["many"] = [int(tensor[0, 0]) for tensor in kept]
        return g
    Saves.apply(leaf(2), many).sum().backward()

    class Dirty(torch.autograd.Function):                # what it saves may not be read in backward: it is not
        @staticmethod
        def forward(ctx, x):
            x.exp_()
            ctx.mark_dirty(x)
            ctx.save_for_backward(x.view(-1))
            return x
        @staticmethod
        def backward(ctx, g):
            return g
    out["dirty"] = float(Dirty.apply(leaf(3) * 0.5).sum())

    def differentiates(ctx, g):
        for tensor in ctx.saved_tensors:
            tensor.requires_grad_()
        with torch.enable_grad():
            y = ctx.saved_tensors[0].sin()
        y.backward(g)
        return ctx.saved_tensors[0].grad
    x = leaf(4)
    Saves.apply(x, differentiates, torch.ones(64, 80) * 1.5).sum().backward()
    out["differentiates"] = x.grad

    def reads(node):
        return node._saved_self
    def reads_in_a_thread(node):
        read = []
        thread = threading.Thread(target=lambda: read.append(node._saved_self))
        thread.start()
        thread.join()
        return read.pop()
    for name, read in {"reads": reads, "reads in a thread": reads_in_a_thread}.items():
        p, q, w = leaf(5), leaf(6), leaf(7)
        h = leaf(8) * 1.5
        y = h * w
        node = y.grad_fn
        del h
        p.register_hook(lambda g: read(node))
        loss = (p * 1).sum() + Saves.apply(q, lambda ctx, g: read(node)).sum() + y.sum()
        loss.backward(retain_graph=True)
        apart = p.grad.data_ptr() != q.grad.data_ptr()
        loss.backward()                                  # accumulates in place into what was read
        p.grad.mul_(2)
        out[name] = [apart, p.grad, q.grad, w.grad]

    def writes_to_a_slice(ctx, g):
        a, b, whole = ctx.saved_tensors
        a.mul_(3)
        seen.append([len({x.untyped_storage().data_ptr() for x in (a, b, whole)}), b._version])
        return whole.view(64, 80)
    seen = []
    h = torch.arange(64.0 * 80) * 1
    x = leaf(9)
    Saves.apply(x, writes_to_a_slice, h[:100], h[:200], h).sum().backward()
    del h
    h = torch.arange(64.0 * 80) * 1
    z = leaf(10)
    y = Saves.apply(z, writes_to_a_slice, h[:100], h[:200], h)
    del h
    y.sum().backward()
    out["slices"] = [seen, x.grad, z.grad]

    class Both(torch.autograd.Function):                 # its gradients wait behind nodes that pass them through
        @staticmethod
        def forward(ctx, p, q, h):
            ctx.save_for_backward(h, h.view(64, 80))
            return p.sum() + q.sum()
        @staticmethod
        def backward(ctx, g):
            return *ctx.saved_tensors, None
    for kept in (False, True):
        p, q, w = t.noise(64 * 80, seed=13).requires_grad_(), leaf(14), t.noise(64 * 80, seed=15).requires_grad_()
        h = torch.arange(64.0 * 80) * 1
        z = w * h
        x, y, m = p + torch.zeros(64 * 80), q + torch.zeros(64, 80), (w * 1.5).sin()
        loss = Both.apply(x, y, h) + m.sum() + z.sum()
        del h, z, m, x, y
        loss.backward(retain_graph=kept)
        apart = p.grad.data_ptr() != q.grad.data_ptr()
        if kept:
            loss.backward()
        p.grad.mul_(2)
        out[f"waiting, {kept}"] = [apart, p.grad, q.grad, w.grad]

    w = leaf(16)
    h = w * 1.5
    y = (h * h).sum()
    del h
    with torch.inference_mode():
        y.backward()
    out["inference"] = [w.grad]

    living, alive = [leaf(11) * 1 for _ in range(5)], []
    def lets_go(ctx, g):
        tensor, = ctx.saved_tensors
        alive.append(sum(not torch.UntypedStorage._expired(reference) for reference in references))
        living.pop()
        return g
    references = [h.untyped_storage()._weak_ref() for h in living]
    x = leaf(12)
    for h in living:
        x = Saves.apply(x, lets_go, h)
    del h
    x.sum().backward()
    out["alive"] = alive
    t.emit(**out)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_functions_and_hooks_that_inspect_nodes_see_stocks_state(run_pair, identical, conf):
    pair = run_pair(short_without_loss(LOOKED_INTO, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=0).json
    assert stock["many"] == list(range(40)) and stock["alive"] == [5, 4, 3, 2, 1]
    assert [stock["reads"][0], stock["reads in a thread"][0]] == [True, True]
    exact = ("many", "alive", "dirty", "differentiates")
    identical({k: pleat[k] for k in exact}, {k: stock[k] for k in exact})
    assert [pleat["reads"][0], pleat["reads in a thread"][0]] == [True, True]
    identical(pleat["slices"][0], stock["slices"][0])
    for waiting in ("waiting, False", "waiting, True"):
        assert pleat[waiting][0] is stock[waiting][0] is True
    if conf == LOSSLESS:
        identical(pleat, stock)


MANY = """
    import time, torch, pleat_test_support as t
    COUNT = 3000
    class Sum(torch.autograd.Function):                  # of very many, read again and again
        @staticmethod
        def forward(ctx, *saved):
            ctx.save_for_backward(*saved)
            return torch.stack([x.sum() for x in saved]).sum()
        @staticmethod
        def backward(ctx, g):
            first, again = ctx.saved_tensors, ctx.saved_tensors
            same.append(sum(x is y for x, y in zip(first, again)))
            read.append(t.digest(*first[::100]))
            return tuple(x * 0 + g for x in first)
    same, read = [], []
    leaf = t.two_values(COUNT, 128, seed=1).requires_grad_()
    def graph():
        rows = [row * 1 for row in leaf.unbind(0)]
        return Sum.apply(*rows)
    seconds = time.process_time()
    class Nested(torch.autograd.Function):               # passes within passes
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            ctx.save_for_backward(x * 1)
            return x * 2
        @staticmethod
        def backward(ctx, g):
            saved, = ctx.saved_tensors
            if ctx.depth:
                inner = saved.detach().requires_grad_()
                with torch.enable_grad():
                    Nested.apply(inner * 1, ctx.depth - 1).sum().backward()
                return inner.grad * g * saved, None
            return g * saved, None
    graph().backward()
    graph().backward()                                   # nothing of the first is taken for the second's
    a = t.noise(8, 64, seed=2).requires_grad_()
    Nested.apply(a * 1, 40).sum().backward()
    seconds = time.process_time() - seconds
    t.emit(same=same, read=read, leaf=leaf.grad, a=a.grad, seconds=seconds, alive=t.count("alive"))
"""


def test_a_function_with_very_many_tensors_gets_the_same_as_in_stock(run_pair, identical):
    pair = run_pair(MANY, conf=LOSSLESS)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=6000).json
    assert stock["alive"] == pleat["alive"] == 0
    mine, theirs = pleat.pop("seconds"), stock.pop("seconds")
    identical(pleat, stock)
    assert mine < 1 + 10 * theirs  # CPU seconds; each request searches its tensors


SUBCLASS = """
    import torch, pleat_test_support as t
    class Tagged(torch.Tensor):
        pass
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, other):
            ctx.save_for_backward(x, other)
            return (x * other).as_subclass(torch.Tensor)
        @staticmethod
        def backward(ctx, g):
            x, other = ctx.saved_tensors
            log.append([type(x).__name__, getattr(x, "note", None), type(other).__name__, x is kept])
            return (g * other).as_subclass(torch.Tensor), None
    log = []
    leaf = t.noise(64, 80, seed=1).requires_grad_()
    kept = (leaf * 2).as_subclass(Tagged)
    kept.note = "an attribute of the user"
    Product.apply(kept, (t.noise(64, 80, seed=2) * 1).as_subclass(Tagged)).sum().backward()
    t.emit(log=log, leaf=leaf.grad)
"""


def test_a_living_saved_tensor_keeps_its_type_and_attributes(run_pair, identical):
    pair = run_pair(SUBCLASS, conf=LOSSY)
    stock = pair.stock.check().json
    assert stock["log"][0][0] == "Tagged" and stock["log"][0][3] is True
    identical(pair.pleat.check().json, stock)


CPP_SOURCE = r"""
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <ATen/ATen.h>
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;
static const void* weight_given = nullptr;
static int64_t same_weight = -1;
struct ScaledProduct : public torch::autograd::Function<ScaledProduct> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const Variable& weight) {
    weight_given = weight.unsafeGetTensorImpl();
    at::Tensor out = at::sigmoid(at::matmul(x, weight.t()));
    ctx->save_for_backward({x, weight, out});
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list saved = ctx->get_saved_variables();
    same_weight = saved[1].unsafeGetTensorImpl() == weight_given;
    at::Tensor g = grads[0] * saved[2] * (1 - saved[2]);
    return {at::matmul(g, saved[1]), at::matmul(g.t(), saved[0])};
  }
};
static at::Tensor product(const at::Tensor& x, const at::Tensor& w) { return ScaledProduct::apply(x, w); }
static int64_t same() { return same_weight; }
TORCH_LIBRARY(pleat_test, m) {
  m.def("product", product);
  m.def("same", same);
}
"""

CPP_BUILD = """
    import pathlib, sys
    from torch.utils.cpp_extension import load
    folder = pathlib.Path(sys.argv[1]); folder.mkdir(parents=True, exist_ok=True)
    source = folder / "pleat_test_extension.cpp"
    text = pathlib.Path(sys.argv[2]).read_text()
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
    load("pleat_test_extension", [str(source)], build_directory=str(folder), is_python_module=False,
         extra_cflags=["-O0"])
    import pleat_test_support; pleat_test_support.emit()
"""

CPP_USE = """
    import glob, sys, torch, pleat_test_support as t
    torch.ops.load_library(glob.glob(sys.argv[1] + "/*.so")[0])
    weight = torch.nn.Parameter(t.noise(48, 64, seed=1) * 0.1)
    leaf = t.activations(t.noise(128, 64, seed=2))
    h = leaf * 1.5
    out = torch.ops.pleat_test.product(h, weight)
    del h
    loss = (out * t.noise(128, 48, seed=4)).sum()
    del out
    loss.backward()
    t.emit(same=torch.ops.pleat_test.same(), weight=weight.grad, leaf=leaf.grad)
"""


@pytest.mark.slow
@pytest.mark.rotating(set="long processes")
def test_a_custom_function_in_cpp_gets_the_very_parameter_it_saved(
    run_script, run_pair, identical, close, build_dir, torch_version, tmp_path
):
    folder = build_dir / "test_extensions" / f"torch{torch_version}"
    source = tmp_path / "source.cpp"
    source.write_text(CPP_SOURCE)
    run_script(CPP_BUILD, preload=False, args=(folder, source), timeout=300).check()
    for conf in (LOSSLESS, LOSSY + ",trust:+ScaledProduct"):
        pair = run_pair(short_without_loss(CPP_USE, conf), conf=conf, args=(folder,))
        stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1 if conf == LOSSLESS else 2).json
        assert stock["same"] == 1 and pleat["same"] == 1
        if conf == LOSSLESS:
            identical(pleat, stock)
        else:
            close([pleat["weight"], pleat["leaf"]], [stock["weight"], stock["leaf"]], relative=0.4)
