"""Pleat next to other saved-tensor hooks: the user's hooks win."""

import pytest

from conftest import LOSSLESS, LOSSY, short_without_loss

SAVE_ON_CPU = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64), torch.nn.Tanh())
    x = t.noise(64, 64, seed=1)
    before = t.count("tagged")
    with torch.autograd.graph.save_on_cpu():
        loss = model(x).square().mean()
    tagged_inside = t.count("tagged") - before
    loss.backward()
    inside = t.gradients(model)
    model.zero_grad()
    model(x).square().mean().backward()
    t.emit(inside=inside, outside=t.gradients(model), tagged_inside=tagged_inside)
"""


@pytest.mark.smoke
def test_save_on_cpu_keeps_its_own_exact_copies(run_pair, identical, close):
    pair = run_pair(SAVE_ON_CPU, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=2).json
    identical(pleat["inside"], stock["inside"])
    close(pleat["outside"], stock["outside"], relative=0.3)
    assert pleat["tagged_inside"] == 0


USER_HOOKS = """
    import torch, pleat_test_support as t
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64), torch.nn.Tanh())
    x = t.noise(64, 64, seed=1)
    packed, unpacked = [], []
    def pack(tensor):
        packed.append(t.digest(tensor))
        return tensor.detach().clone()
    def unpack(tensor):
        unpacked.append(t.digest(tensor))
        return tensor
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = model(x).square().mean()
    outer = model(x + 1).square().mean()
    loss.backward()
    inside = t.gradients(model)
    outer.backward()
    with torch.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
        model(x + 2).square().mean().backward()      # ours are not Python's: must not raise
        try:
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                pass
            error = None
        except RuntimeError as e:
            error = str(e)
    t.emit(packed=packed, unpacked=unpacked, inside=inside, error=error)
"""


@pytest.mark.smoke
def test_the_users_default_hooks_win(run_pair, identical):
    pair = run_pair(USER_HOOKS, conf=LOSSY)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=2).json
    assert stock["packed"] and stock["error"]
    identical(pleat, stock)


REGISTER_HOOKS = """
    import torch, pleat_test_support as t
    a, b = (t.noise(64, 96, seed=s).requires_grad_() for s in (1, 2))
    log = []
    def hooks(name):
        def pack(tensor):
            log.append([name, "pack", t.digest(tensor), tensor.requires_grad, tensor.is_leaf])
            return tensor.detach() * 2
        def unpack(tensor):
            log.append([name, "unpack", t.digest(tensor)])
            return tensor / 2
        return pack, unpack
    x, w = a + 1, b + 1
    y = x * w
    y.grad_fn._raw_saved_self.register_hooks(*hooks("self"))
    try:
        y.grad_fn._raw_saved_self.register_hooks(*hooks("again"))
        twice = None
    except RuntimeError as e:
        twice = str(e)
    seen = t.digest(y.grad_fn._saved_self)
    del x, w
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    try:
        y.grad_fn._raw_saved_self.register_hooks(*hooks("freed"))
        freed = None
    except RuntimeError as e:
        freed = str(e)
    z = a.sigmoid()                                   # a node's own output
    z.grad_fn._raw_saved_result.register_hooks(*hooks("result"))
    z.sum().backward()
    leaf = a * b                                      # leaves
    leaf.grad_fn._raw_saved_self.register_hooks(*hooks("leaf"))
    leaf.sum().backward()
    # b's gradient runs through the doubled and halved copy of x: exact
    t.emit(log=log, twice=twice, freed=freed, seen=seen, b=b.grad)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_hooks_registered_on_a_raw_saved_tensor_win(run_pair, identical, conf):
    pair = run_pair(short_without_loss(REGISTER_HOOKS, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.check().json
    assert stock["twice"] and stock["freed"]
    identical(pleat, stock)


LATE_HOOKS = """
    import torch, pleat_test_support as t
    a, b = (t.activations(t.noise(64, 96, seed=s)) for s in (1, 2))
    x, w = a + 1, b + 1
    y = x * w
    original = x.detach().clone()
    loss = t.total(y)
    del x, w                                          # released and compressed by now
    seen = []
    def pack(tensor):
        seen.append(tensor.detach().clone())
        return tensor.detach().clone()
    y.grad_fn._raw_saved_self.register_hooks(pack, lambda tensor: tensor)
    loss.backward()
    t.emit(calls=len(seen), ratio=t.group_ratio(original, seen[0], 4), used=torch.equal(b.grad, seen[0]))
"""


@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_hooks_registered_after_the_release_get_the_restored_tensor(run_pair, conf):
    pair = run_pair(short_without_loss(LATE_HOOKS, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=1).json
    assert pleat["calls"] == stock["calls"] == 1 and pleat["used"] and stock["used"]
    assert pleat["ratio"] <= (0 if conf == LOSSLESS else 1)


MUTATION = """
    import torch, pleat_test_support as t
    a = t.noise(64, 96, seed=1).requires_grad_()
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        x = a + 1
        y = x * (a * 2)
        x.mul_(5)
        y.sum().backward()
    t.emit(a=a.grad)
"""


def test_allow_mutation_on_saved_tensors_works_as_in_stock(run_pair, identical):
    pair = run_pair(MUTATION, conf=LOSSY)
    pair.stock.check()
    identical(pair.pleat.check().json, pair.stock.json)
