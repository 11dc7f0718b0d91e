"""What code in Python can tell about a saved tensor stays as in stock: which object it is, its class, its attributes."""

import pytest

from conftest import LOSSY, OFF

MODEL = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 32))
    x = t.noise(64, 64, seed=1)
    def loss_of(x):
        return model(x).square().mean()
"""

MAKE_FX = MODEL + """
    from torch.fx.experimental.proxy_tensor import make_fx
    def gradients(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(loss_of(torch.tanh(x) * x), x)[0]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    graph = make_fx(gradients, tracing_mode={mode!r}, _allow_non_fake_inputs=True, pre_dispatch={pre_dispatch})(x)
    constants = sorted(name for name, _ in graph.named_buffers())
    other = t.noise(64, 64, seed=2)
    t.emit(other=graph(other), eager=gradients(other), constants=len(constants), nodes=len(graph.graph.nodes))
"""


@pytest.mark.parametrize("mode, pre_dispatch", [("real", False), ("real", True), ("symbolic", False)])
def test_a_graph_of_make_fx_has_no_constants_of_the_sample(run_pair, identical, mode, pre_dispatch):
    pair = run_pair(MAKE_FX.format(mode=mode, pre_dispatch=pre_dispatch), conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=0).json
    for name in ("other", "constants", "nodes"):
        identical(pleat[name], stock[name])


MODES = MODEL + """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode
    from torch.distributed._tools.mem_tracker import MemTracker
    class Ids(TorchDispatchMode):
        '''What each operator reads, as numbers in order of first sight.'''
        def __init__(self):
            super().__init__()
            self.seen, self.log, self.alive = {}, [], []
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for value in torch.utils._pytree.tree_leaves((args, kwargs, out)):
                if isinstance(value, torch.Tensor):
                    self.alive.append(value)
                    self.log.append((str(func), self.seen.setdefault(id(value), len(self.seen))))
            return out
    def within(mode):
        with mode:
            loss_of(x).backward()
        gradients = t.gradients(model)
        model.zero_grad()
        return gradients
    ids, flops, memory = Ids(), FlopCounterMode(display=False), MemTracker()
    memory.track_external(model)
    before = t.count("tagged")
    found = [within(mode) for mode in (ids, flops, memory)]
    peak = sorted(of_device["Total"] for of_device in memory.get_tracker_snapshot("peak").values())
    with Ids() as saving:
        loss = loss_of(x)
    tagged = t.count("tagged") - before
    loss.backward()                      # saved under a mode, read without one
    after = t.gradients(model)
    model.zero_grad()
    loss = loss_of(x)
    # Saved without a mode, read under one. What any hook returns is detached, in the sight of the mode.
    with Ids() as reading:
        loss.backward()
    t.emit(found=found, log=ids.log, flops=flops.get_total_flops(), peak=peak, after=after, saving=saving.log,
           reading=[func for func, _ in reading.log if "detach" not in func], tagged=tagged)
"""


def test_what_is_saved_while_a_mode_watches_is_left_to_stock(run_pair, identical, close):
    pair = run_pair(MODES, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1).json
    assert pleat["tagged"] == 0
    identical(pleat, stock)


SUBCLASSES = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    class Image(torch.Tensor):
        @property
        def half_area(self):
            return self.shape[-1] * self.shape[-2] / 2
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, area):
            ctx.save_for_backward(x)
            ctx.area = area
            return x.as_subclass(torch.Tensor) * 2
        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * x.as_subclass(torch.Tensor) / ctx.area(x), None
    w, v = t.activations(t.noise(256, 256, seed=1)), torch.nn.Parameter(t.noise(256, 256, seed=2))
    def image():
        return (w * 2 + 1).as_subclass(Image)
    def with_attribute():
        x = w * 2 + 1
        x.area_of_mine = 7.0
        return x
    def through(make, area):
        y = Scaled.apply(make(), area)
        y.square().mean().backward()
        found = w.grad.clone()
        w.grad = None
        return found
    before = t.count("tagged")
    found = [through(image, lambda x: x.half_area), through(with_attribute, lambda x: x.area_of_mine)]
    plain = through(lambda: w * 2 + 1, lambda x: 3.0)
    # Formulas of torch's never look at a class: what they save is compressed.
    picture = image()
    t.total(torch.nn.functional.gelu(picture @ v)).backward()
    t.emit(found=found, plain=plain, gelu=w.grad)
"""


def test_a_function_in_python_gets_its_subclass_back(run_pair, identical, close):
    pair = run_pair(SUBCLASSES, conf=LOSSY + ",trust:+Scaled")
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=2).json
    identical(pleat["found"], stock["found"])
    close(pleat["plain"], stock["plain"], relative=0.3)
    close(pleat["gelu"], stock["gelu"], relative=0.3)
    assert pair.pleat.stats["eligibility"]["python_state"]["tensors"] == 2
