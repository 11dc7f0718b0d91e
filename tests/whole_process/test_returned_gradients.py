"""Saved tensors that a function returns as gradients have no other owner: an accumulator takes them as .grad."""

import pytest

from conftest import LOSSLESS, LOSSY, short_without_loss

KEPT = """
    import torch, pleat_test_support as t
    dtype = getattr(torch, DTYPE)
    def leaf(seed):
        return t.noise(64, 80, seed=seed).to(dtype).requires_grad_()
    class Stored(torch.autograd.Function):               # its gradient is computed in forward, and saved
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(2 * x.detach())
            return (x * x).sum()
        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0]
    class Shared(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.save_for_backward(factor)
            return (x * factor).sum()
        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0], None
    results = {}
    def passes(name, between):
        x = leaf(1)
        loss = Stored.apply(x)
        seen = []
        for _ in range(3):
            loss.backward(retain_graph=True)
            seen.append(x.grad.clone())
            between(x.grad)
        seen.append(torch.autograd.grad(loss, x)[0])
        results[name] = seen
    passes("accumulated", lambda grad: None)
    passes("zeroed", lambda grad: grad.zero_())
    passes("zeroed behind autograd's back", lambda grad: grad.data.zero_())
    passes("clipped behind autograd's back", lambda grad: grad.data.clamp_(-0.1, 0.1))
    def two_gradients(name, keep, make):
        p, q = leaf(2), leaf(3)
        factor = make(leaf(4))
        view = factor.view(-1) if keep == "view" else None
        loss = Shared.apply(p, factor) + Shared.apply(q, factor)
        value = factor.detach().clone()
        if keep != "variable":
            del factor
        loss.backward()
        p.grad.mul_(100)                                 # as clipping, weight decay, averaging do
        apart = p.grad.data_ptr() != q.grad.data_ptr()
        kept = None if keep == "nothing" else ((factor if keep == "variable" else view).detach().view_as(value) == value).all().item()
        results[f"{name}, {keep} kept"] = [apart, kept, p.grad, q.grad]
    for keep in ("nothing", "variable", "view"):
        two_gradients("constant", keep, lambda x: x.detach() * 2)
        two_gradients("of the graph", keep, lambda x: x * 2)
    class Twice(torch.autograd.Function):                # the same for both, asked for once or twice
        @staticmethod
        def forward(ctx, p, q, factor, times):
            ctx.save_for_backward(*[factor] * times)
            return ((p + q) * factor).sum()
        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0], ctx.saved_tensors[-1], None, None
    for times in (1, 2):
        p, q = leaf(5), leaf(6)
        loss = Twice.apply(p, q, leaf(7) * 2, times)
        read = []
        p.register_post_accumulate_grad_hook(lambda p: read.extend(loss.grad_fn.saved_tensors))
        loss.backward(retain_graph=True)
        apart = len({x.data_ptr() for x in (p.grad, q.grad, read[0])}) == 3
        p.grad.mul_(100)
        results[f"asked {times} times, nothing kept"] = [apart, torch.equal(read[0], q.grad), p.grad, q.grad]
    class Views(torch.autograd.Function):                # two of one storage
        @staticmethod
        def forward(ctx, p, q):
            values = torch.arange(64 * 80).to(dtype) * 1
            ctx.save_for_backward(values, values.view(64, 80))
            return p.sum() + q.sum()
        @staticmethod
        def backward(ctx, g):
            saved = ctx.saved_tensors
            with torch.enable_grad():                    # a pass within, of another function
                Stored.apply(leaf(17)).backward()
            return saved
    p, q = t.noise(64 * 80, seed=11).to(dtype).requires_grad_(), leaf(10)
    for _ in range(2):
        Views.apply(p, q).backward()
    results["two views, nothing kept"] = [p.grad.data_ptr() != q.grad.data_ptr(), None, p.grad.view(64, 80) * 100, q.grad]
    class Inner(torch.autograd.Function):                # asks for a gradient of what it saved
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return (x * y * y).sum()
        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            with torch.enable_grad():
                return None, torch.autograd.grad((x * y * y).sum(), y, g)[0]
    p = leaf(12)
    x = p * 1
    loss = Inner.apply(x, x.view_as(x))
    del x
    loss.backward()
    results["one of two of a layout"] = [p.grad]
    p = t.noise(64, 80, seed=13).to(torch.complex64 if dtype == torch.float32 else torch.complex128).requires_grad_()
    class Conjugate(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return (a * b).sum()
        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return (g * b).resolve_conj().clone(), (g * a * 2).resolve_conj().clone()
    x = p * 1
    loss = Conjugate.apply(x, x.conj()).abs()
    del x
    loss.backward()
    results["conjugate"] = [torch.view_as_real(p.grad)]
    class Owner(torch.autograd.Function):                # lets go of what it saved, in backward
        @staticmethod
        def forward(ctx, p, x):
            ctx.save_for_backward(x)
            ctx.owned = x
            return p.sum()
        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            ctx.owned = None
            return x, None
    p, w = leaf(14), leaf(15)
    x = leaf(16).detach() * 1
    loss = (w * x).sum() + p.sum() * 2
    loss = loss + Owner.apply(p, x)
    del x
    loss.backward()
    results["let go"] = [p.grad, w.grad]
    alive = []
    class Remembers(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, buffer):
            ctx.save_for_backward(buffer)
            return x * 2
        @staticmethod
        def backward(ctx, g):
            alive.append(ctx.saved_tensors[0].untyped_storage()._weak_ref())
            return g, None
    class Nested(torch.autograd.Function):               # runs a backward pass in its own
        @staticmethod
        def forward(ctx, x):
            return x.clone()
        @staticmethod
        def backward(ctx, g):
            with torch.enable_grad():
                buffer = torch.zeros(64, 80)
                Remembers.apply(leaf(8) * 1, buffer.view(-1)).sum().backward()
            return g
    first = leaf(9)
    h = first
    for _ in range(4):
        h = Nested.apply(h)
    left = []
    first.register_hook(lambda g: left.append(sum(not torch.UntypedStorage._expired(a) for a in alive)))
    h.sum().backward()
    results["left of nested passes"] = left
    t.emit(**results)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_a_saved_tensor_returned_as_a_gradient_is_not_shared(run_pair, identical, close, conf, dtype):
    pair = run_pair(short_without_loss(KEPT.replace("DTYPE", repr(dtype)), conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=0).json
    two_gradients = {name for name in stock if name.endswith(" kept")}
    assert len(two_gradients) == 9
    for name in two_gradients:
        identical(pleat[name][:2], stock[name][:2])
        assert stock[name][0] is True
    assert pleat["left of nested passes"] == stock["left of nested passes"] == [0]
    if conf == LOSSLESS or dtype == "float64":
        identical(pleat, stock)
        return
    for name in stock.keys() - {"pleat_stats"}:
        gradients = slice(2 if name in two_gradients else 0, None)
        close(pleat[name][gradients], stock[name][gradients], relative=0.2)
    for name in two_gradients:
        identical(pleat[name][2], pleat[name][3] * 100)   # one noise for both
