"""Any thread may save, free, restore and run backward, at the same time as any other."""

import pytest

from conftest import LOSSLESS, LOSSY, short_without_loss

RACE = """
    import queue, sys, threading, torch, pleat_test_support as t
    sys.setswitchinterval(1e-5)
    basket = queue.SimpleQueue()
    def drop():
        while basket.get() is not None:
            pass
    threads = [threading.Thread(target=drop) for _ in range(2)]
    for thread in threads:
        thread.start()
    a = t.noise(256, 512, seed=1).requires_grad_()
    b = t.noise(256, 512, seed=2).requires_grad_()
    worst, digests = 0.0, set()
    for step in range(150):
        x, w = a + 1, b + 1
        y = x * w
        z = x * x
        # x and w die in another thread while this one starts backward
        basket.put([x]); basket.put([w])
        del x, w
        ga, gb = torch.autograd.grad([y.sum(), z.sum()], [a, b])
        del y, z
        expected_a, expected_b = (b + 1 + 2 * (a + 1)).detach(), (a + 1).detach()
        worst = max(worst, (ga - expected_a).abs().max().item(), (gb - expected_b).abs().max().item())
        digests.add(t.digest(ga, gb))
    for _ in threads:
        basket.put(None)
    for thread in threads:
        thread.join()
    t.emit(worst=worst, different=len(digests))
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY, LOSSY + ",place:inplace", LOSSY + ",when:forward_end"])
def test_a_release_racing_the_unpack_of_the_same_tensor(run_pair, conf):
    pair = run_pair(short_without_loss(RACE, conf), conf=conf, threads=2)
    stock, pleat = pair.stock.check().json, pair.pleat.active(released=0, encoded=0).json
    assert pair.pleat.stats is None or pair.pleat.records("tagged") >= 300
    assert stock["different"] == 1 and stock["worst"] == 0
    if "lossless" in conf:
        assert pleat["different"] == 1 and pleat["worst"] == 0
    else:
        assert pleat["worst"] <= 3 * 10.5 / 15  # three steps of a group of normal numbers


MANY = """
    import threading, torch, pleat_test_support as t
    torch.manual_seed(0)
    def build():
        return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128),
                                   torch.nn.Linear(128, 128), t.Gate(), torch.nn.SiLU(), torch.nn.Linear(128, 16))
    models = [build() for _ in range(4)]
    first, final, errors = [None] * 4, [None] * 4, []
    def train(n):
        try:
            model = models[n]
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            x, y = t.noise(64, 64, seed=n), t.noise(64, 16, seed=100 + n)
            for step in range(15):
                optimizer.zero_grad()
                (model(x) - y).square().mean().backward()
                first[n] = first[n] or t.gradients(model)
                optimizer.step()
            final[n] = [p.detach().clone() for p in model.parameters()]
        except Exception as error:
            errors.append(repr(error))
    threads = [threading.Thread(target=train, args=(n,)) for n in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    t.emit(first=first, final=final, errors=errors, alive=t.count("alive"))
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_four_threads_train_their_own_models(run_pair, identical, close, conf):
    pair = run_pair(MANY, conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=60 if conf == LOSSLESS else 100).json
    assert not pleat["errors"]
    if conf == LOSSLESS:
        identical(pleat, {**stock, "alive": 0})
    else:
        close(pleat["first"], stock["first"], relative=0.4)
    assert pleat["alive"] == 0


HANDED_OVER = """
    import gc, threading, torch, pleat_test_support as t
    def elsewhere(f):
        result = []
        thread = threading.Thread(target=lambda: result.append(f()))
        thread.start(); thread.join()
        return result[0]
    a = t.activations(t.noise(256, 256, seed=1))
    def graph():
        h = a
        for _ in range(5):
            h = (h * 1.01).tanh() * h.sigmoid()
        return t.total(h)
    here = graph()
    g1, = torch.autograd.grad(elsewhere(graph), a)                   # built there, used here
    g2, = elsewhere(lambda: torch.autograd.grad(here, a))            # built here, used there
    box = [graph()]
    elsewhere(lambda: box.clear())                                   # built here, freed there
    never = elsewhere(graph)                                         # built there, freed here
    del never, here
    thread_local_graph = elsewhere(lambda: [graph() for _ in range(3)] and 1)
    gc.collect()
    t.emit(g1=g1, g2=g2, alive=t.count("alive"))
"""


@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_graphs_are_handed_from_thread_to_thread(run_pair, identical, close, conf):
    pair = run_pair(short_without_loss(HANDED_OVER, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=20).json
    assert pleat["alive"] == 0
    if conf == LOSSLESS:
        identical(pleat, stock)
    else:
        close([pleat["g1"], pleat["g2"]], [stock["g1"], stock["g2"]], relative=0.4)


PARALLEL = """
    import threading, torch, pleat_test_support as t
    a = t.activations(t.noise(256, 256, seed=1))
    h = a
    for _ in range(4):
        h = (h * 1.01).tanh() * h.sigmoid()
    losses = [t.total(h * t.noise(256, 256, seed=s)) for s in range(4)]
    del h
    grads = [None] * 4
    def run(n):
        grads[n], = torch.autograd.grad(losses[n], a, retain_graph=True)
    for _ in range(5):
        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    alone = []
    for n in range(4):
        alone.append(torch.equal(torch.autograd.grad(losses[n], a, retain_graph=True)[0], grads[n]))
    t.emit(grads=grads, alone=alone)
"""


@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_several_threads_run_backward_over_one_retained_graph(run_pair, identical, close, conf):
    """They unpack the same payloads at the same time; everyone must see the same values."""
    pair = run_pair(short_without_loss(PARALLEL, conf), conf=conf)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=4).json
    assert pleat["alone"] == stock["alone"] == [True] * 4
    if conf == LOSSLESS:
        identical(pleat["grads"], stock["grads"])
    else:
        close(pleat["grads"], stock["grads"], relative=0.4)


FIRST = """
    import threading, warnings, torch, pleat_test_support as t
    warnings.simplefilter("ignore")
    torch.autograd.set_detect_anomaly(True)              # every node made needs the interpreter's lock
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2
        @staticmethod
        def backward(ctx, g):
            return g * 2
    a = t.noise(64, 96, seed=1).requires_grad_()
    start = threading.Barrier(2)
    def operators():
        start.wait()
        (a * 1).exp()
    def functions():
        b = a.detach().requires_grad_() + 0
        start.wait()
        for _ in range(200):
            Double.apply(b)                              # holds that lock while it saves
    threads = [threading.Thread(target=f) for f in (operators, functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    t.emit()
"""


def test_two_threads_whose_first_saves_meet_do_not_wait_for_each_other(run_script):
    for _ in range(3):
        run_script(FIRST).check()


FREEING = """
    import os, threading, torch, pleat_test_support as t
    x = t.activations(t.noise(2048, 1024, seed=1))
    box = [x * 1.5]
    product = box[0] * x                                     # saves what the other thread frees
    y = t.total(product)
    def free():
        before = len(os.listdir("/proc/self/task"))
        box.clear()
        t.emit(new=len(os.listdir("/proc/self/task")) - before, encoded=t.count("encoded"))
    thread = threading.Thread(target=free)
    thread.start(); thread.join()
    y.backward()
"""


def test_a_thread_that_only_frees_gets_no_threads_of_its_own(run_pair):
    pair = run_pair(FREEING, conf=LOSSY, threads=2)
    assert pair.stock.check().json["new"] == 0
    pleat = pair.pleat.active(encoded=1).json
    assert pleat["new"] == 0
    assert pleat["encoded"] == 1, "in the thread that freed it"


OWN_GRAPHS = """
    import threading, torch, pleat_test_support as t
    dtype = getattr(torch, DTYPE)
    wrong = []
    def train(seed):
        a = t.noise(32, 32, seed=seed).to(dtype).requires_grad_()
        for step in range(1500):
            h = a * 2
            loss = sum(f(h).sum() for f in [torch.sin, torch.cos, torch.sinc] * 4)   # the nodes share one record
            del h
            gradient, = torch.autograd.grad(loss, a)
            if step == 0:
                first = gradient
            elif not torch.equal(gradient, first):
                wrong.append((seed, step))
    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    t.emit(wrong=wrong)
"""


@pytest.mark.parametrize("conf, dtype", [("bits:lossless,min_bytes:0", "float32"), (LOSSY, "float64")])
def test_threads_with_graphs_of_their_own_do_not_mix_their_bytes(run_script, conf, dtype):
    assert run_script(OWN_GRAPHS.replace("DTYPE", repr(dtype)), conf=conf).active(encoded=0).json["wrong"] == []


LOOKED_AT = """
    import threading, torch, pleat_test_support as t
    a = t.noise(64, 64, seed=1).requires_grad_()
    h = a * 2
    y = h.sin()
    node, loss = y.grad_fn, y.sum()
    del h, y
    kept = node._saved_self.untyped_storage()            # known to the interpreter, whose lock it takes to share it
    stop = []
    def look():
        while not stop:
            node._saved_self
    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(2000):
        loss.backward(retain_graph=True)
    stop.append(True)
    thread.join()
    t.emit()
"""


def test_a_saved_tensor_is_looked_at_while_backward_runs(run_script):
    run_script(LOOKED_AT, conf="bits:lossless,min_bytes:0", timeout=120).active(encoded=0)
