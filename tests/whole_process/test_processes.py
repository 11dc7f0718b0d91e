"""Children, ends of processes, limits."""

import functools
import re
import resource

import pytest

from conftest import LOSSLESS, LOSSY, STOCK_ONLY, short_without_loss


def without_addresses(text):
    return re.sub(r"0x[0-9a-f]{6,}", "0x...", text)


LOADER = """
    import torch, pleat_test_support as t
    class Data(torch.utils.data.Dataset):
        def __len__(self): return 96
        def __getitem__(self, i):
            x = t.noise(64, seed=i)
            scale = torch.ones(64, requires_grad=True)       # autograd inside the worker
            (x * scale).sigmoid().square().sum().backward()
            return x + 0 * scale.grad, x.mean(), t.count("tagged")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), t.Gate(), torch.nn.GELU(), torch.nn.Linear(128, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    (model(t.noise(8, 64, seed=500)).sum() * 0).backward()      # the parent is active before the fork
    losses, tagged_by_workers = [], []
    for epoch in range(2):
        generator = torch.Generator().manual_seed(epoch)
        loader = torch.utils.data.DataLoader(Data(), 16, shuffle=True, num_workers=2, generator=generator)
        for x, y, tagged in loader:
            optimizer.zero_grad()
            loss = (model(x)[:, 0] - y).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tagged_by_workers.append(int(tagged.max() - tagged.min()))
    t.emit(losses=losses, tagged_by_workers=max(tagged_by_workers))
"""


@pytest.mark.smoke
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_data_loader_workers_by_fork(run_pair, close, identical, conf):
    pair = run_pair(LOADER, conf=conf, threads=2)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=12 if conf == LOSSLESS else 20).json
    assert pleat["tagged_by_workers"] == 0, "a forked child must not tag"
    if conf == LOSSLESS:
        identical(pleat, stock)
    else:
        assert abs(pleat["losses"][-1] - stock["losses"][-1]) < 0.2 * stock["losses"][0]


FORK = """
    import os, sys, torch, pleat_test_support as t
    a = t.activations(t.noise(512, 1024, seed=1))
    b = t.activations(t.noise(8, 1024, seed=2))
    small = t.activations(t.noise(32, 32, seed=3))
    def little():                                            # what stock runs in one thread
        h = small
        for _ in range(4):
            h = (h * 1.01).tanh() * h.sigmoid()
        return t.total(h)
    def large():
        h = a * 2
        y = h * a
        return y, t.total(y), t.total(h[8:16] * b)           # one storage, saved whole and in part
    for _ in range(5):
        y, whole, part = large()
        (whole + part).backward()                             # the parent's threads have been at work
        torch.autograd.grad(little(), small)
    y, whole, part = large()
    pending = little()
    def read():
        found = [t.digest(y.grad_fn._saved_self), t.digest(torch.autograd.grad(part, b)[0])]
        return found + [t.digest(torch.autograd.grad(pending, small)[0])]
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        before = t.count("tagged")
        told = read() + [t.digest(torch.autograd.grad(little(), small)[0]), str(t.count("tagged") - before)]
        os.write(there, " ".join(told).encode())
        if sys.argv[1] == "hard":
            os._exit(7)
        sys.exit(7)
    os.close(there)
    status = os.waitpid(child, 0)[1]
    *inherited, own, tagged = os.read(here, 1000).decode().split()
    t.emit(status=os.waitstatus_to_exitcode(status), inherited=inherited, own=own, tagged=int(tagged), mine=read(),
           threads=torch.get_num_threads())
"""


@pytest.mark.smoke
@pytest.mark.parametrize("end", ["hard", "soft"])
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_a_forked_child_finishes_the_inherited_graph_and_runs_its_own(run_pair, conf, end):
    """It has one thread, though its OpenMP believes in the parent's two."""
    pair = run_pair(short_without_loss(FORK, conf), conf=conf, args=(end,), threads=2)
    stock, pleat = pair.stock.check().json, pair.pleat.active(encoded=8).json
    assert pleat["threads"] == stock["threads"] == 2
    assert pleat["status"] == stock["status"] == 7
    assert pleat["inherited"] == pleat["mine"]
    assert pleat["tagged"] == 0
    assert pleat["own"] == stock["own"], "nothing is lossy in a forked child"
    if conf == LOSSLESS:
        assert pleat["inherited"] == stock["inherited"]
    elif pair.pleat.stats is not None:
        assert pleat["inherited"][0] != stock["inherited"][0], "nothing was lossy"


SPAWN = """
    import multiprocessing, subprocess, sys, torch, pleat_test_support as t
    def work(queue, n):
        torch.manual_seed(n)
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), t.Gate(), torch.nn.Linear(256, 4))
        model(t.noise(64, 64, seed=n)).square().mean().backward()
        queue.put((n, t.digest(*t.gradients(model)), t.count("encoded")))
    if __name__ == "__main__":
        out = {}
        for method in ("spawn", "forkserver"):
            context = multiprocessing.get_context(method)
            queue = context.Queue()
            children = [context.Process(target=work, args=(queue, n)) for n in range(2)]
            for child in children: child.start()
            results = sorted(queue.get(timeout=150) for _ in children)
            for child in children: child.join()
            out[method] = [[c.exitcode for c in children], [r[1] for r in results], [r[2] for r in results]]
        plain = subprocess.run([sys.executable, "-c", "print('hello')"], capture_output=True, text=True)
        shell = subprocess.run("echo $((1+1)); exit 4", shell=True, capture_output=True, text=True)
        out["plain"] = [plain.stdout, plain.stderr, plain.returncode, shell.stdout, shell.stderr, shell.returncode]
        t.emit(out=out)
"""


@pytest.mark.slow
@pytest.mark.rotating(set="long processes")
def test_spawned_children_run_with_pleat_and_other_programs_without(run_pair):
    pair = run_pair(SPAWN, conf=LOSSLESS, fresh=True)
    stock, pleat = pair.stock.check().json["out"], pair.pleat.check().json["out"]
    assert pleat["plain"] == stock["plain"]
    for method in ("spawn", "forkserver"):
        assert pleat[method][:2] == stock[method][:2]
        if pair.pleat.stats is not None and method == "spawn":
            assert min(pleat[method][2]) > 0, "the child was not pleated"


ENDS = """
    import atexit, os, sys, threading, torch, pleat_test_support as t
    a = t.activations(t.noise(256, 256, seed=1))
    def graph():
        h = a
        for _ in range(4):
            h = (h * 1.01).tanh() * h.sigmoid()
        return t.total(h)
    graph().backward()
    kept_graph, kept_tensor = graph(), (a * 2).exp()
    kept_graph_2 = graph()
    sys.kept = [graph(), kept_graph]                     # outlives this module's dictionary
    class Late:
        def __init__(self): self.graph = graph()
        def __del__(self): self.graph.backward()          # backward while the interpreter winds up
    t.emit(ok=True)
    how = sys.argv[1]
    if how == "code": sys.exit(3)
    if how == "hard": os._exit(4)
    if how == "raise": raise ValueError("the script's own mistake")
    if how == "abort": os.abort()
    if how == "atexit": atexit.register(lambda: (graph().backward(), print("late", flush=True)))
    if how == "late": late = Late()
    if how == "thread": threading.Thread(target=lambda: [graph().backward() for _ in range(20)]).start()
    if how == "cycle":
        class Node: pass
        node = Node(); node.me, node.graph = node, graph(); del node
"""


def rotating(*parameters):
    return [pytest.param(*one, marks=pytest.mark.rotating(set="long processes")) for one in parameters]


@pytest.mark.smoke
@pytest.mark.parametrize(
    "how", ["end", "hard", "raise", "abort", *rotating(["code"], ["atexit"], ["late"], ["thread"], ["cycle"])]
)
def test_a_process_with_live_tensors_and_graphs_ends_as_in_stock(run_pair, how):
    # Without a wind-up at exit, a fork is as good a test as a process of its own.
    fresh = how not in ("hard", "abort")
    pair = run_pair(ENDS, conf=LOSSY, args=(how,), fresh=fresh)
    assert pair.pleat.returncode == pair.stock.returncode
    assert without_addresses(pair.pleat.stderr) == without_addresses(pair.stock.stderr)
    assert pair.stock.json["ok"]
    assert pair.pleat.stdout == pair.stock.stdout
    assert STOCK_ONLY or pair.pleat.records("encoded") > 0


INTERRUPT = """
    import os, signal, sys, torch, pleat_test_support as t
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
    a = t.activations(t.noise(256, 256, seed=1))
    where = sys.argv[1]
    def interrupt(*unused):
        signal.raise_signal(signal.SIGINT)
    def step(strike):
        h = a
        for _ in range(4):
            h = (h * 1.01).tanh() * h.sigmoid()
        if strike and where == "backward":
            h.register_hook(interrupt)
        if strike and where == "forward":
            interrupt()
        t.total(h).backward()
    step(False)
    if where == "caught":
        where = "backward"
        try:
            step(True)
        except KeyboardInterrupt:
            pass                                    # from here on its traceback holds no graph
        a.grad = None
        step(False)
        t.emit(grad=t.digest(a.grad), alive=t.count("alive"))
        sys.exit(0)
    step(True)
"""


@pytest.mark.smoke
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_keyboard_interrupt_ends_with_stocks_traceback_and_exit_code(run_pair, where):
    pair = run_pair(INTERRUPT, conf=LOSSY, args=(where,), fresh=True)
    assert "KeyboardInterrupt" in pair.stock.stderr
    assert pair.pleat.returncode == pair.stock.returncode == -2
    assert pair.pleat.stderr == pair.stock.stderr


def test_training_continues_after_a_caught_keyboard_interrupt(run_pair):
    pair = run_pair(short_without_loss(INTERRUPT, LOSSLESS), conf=LOSSLESS, args=("caught",))
    pair.stock.check(), pair.pleat.active(encoded=5)
    assert pair.pleat.json["grad"] == pair.stock.json["grad"]
    assert pair.pleat.json["alive"] == 0


TERMINATED = """
    import os, signal, threading, time, torch, pleat_test_support as t
    a = t.activations(t.noise(512, 512, seed=1))
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    t.emit(ok=True)
    while True:
        h = a
        for _ in range(4):
            h = (h * 1.01).tanh() * h.sigmoid()
        t.total(h).backward()
"""


def test_sigterm_in_mid_training_ends_the_process_by_the_signal(run_pair):
    pair = run_pair(TERMINATED, conf=LOSSY, fresh=True)
    assert pair.pleat.returncode == pair.stock.returncode == -15
    assert pair.pleat.stderr == pair.stock.stderr


LIMITED = """
    import os, resource, sys, torch, pleat_test_support as t
    torch.manual_seed(0)
    layers = []
    for _ in range(12):
        layers += [torch.nn.Linear(512, 512), t.Gate()]
    model = torch.nn.Sequential(*layers)
    limit, own = int(sys.argv[1]), sys.argv[2] == "own"
    if limit and own:
        resource.setrlimit(resource.RLIMIT_AS, (limit << 10, limit << 10))
    x = t.noise(2048, 512, seed=1)
    for step in range(3):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
    loss_value = loss.item()
    del loss
    refused = []
    if limit:
        try:
            torch.empty(limit << 10, dtype=torch.uint8)
        except RuntimeError as error:
            refused.append("memory" if "memory" in str(error) else str(error)[:300])
        graph, kept = x.clone().requires_grad_(), []
        try:
            while len(kept) < 100000:                   # hold on to everything until nothing is left
                graph = (graph * 1.001).tanh()
                kept.append(graph)
        except RuntimeError as error:
            refused.append("memory" if "memory" in str(error) else str(error)[:300])
        del graph, kept
        model.zero_grad()
        model(x).square().mean().backward()             # and the job goes on
    t.emit(loss=loss_value, peak=t.status_kib("VmPeak"), refused=refused, gradients=t.digest(*t.gradients(model)))
"""


@pytest.fixture(scope="module")
def addresses_of_stock(runner):
    """KiB of addresses that the script takes without a limit."""
    return runner.run(LIMITED, preload=False, args=(0, ""), fresh=True).check().json["peak"]


@pytest.fixture(scope="module", params=["the shell", "the script"])
def limited(request, runner, addresses_of_stock):
    """How a script is run under a limit, and stock's result."""
    limit = addresses_of_stock + (160 << 10)
    options = {"args": (limit, "own" if request.param == "the script" else ""), "fresh": True}
    if request.param == "the shell":
        options["limits"] = functools.partial(
            resource.setrlimit, resource.RLIMIT_AS, (limit << 10, limit << 10)
        )
    return options, runner.run(LIMITED, preload=False, **options).check()


@pytest.mark.rotating(set="long processes")
@pytest.mark.parametrize("conf", [LOSSLESS, LOSSY])
def test_address_space_limits_are_respected(limited, run_script, conf):
    """A job that fits under a limit in stock (plus 160 MB) runs; one that does not fit raises as in stock."""
    options, stock = limited
    assert stock.json["refused"] == ["memory", "memory"]
    pleat = run_script(LIMITED, conf=conf, **options).active(encoded=20)
    assert pleat.json["loss"] == stock.json["loss"]
    assert pleat.json["refused"] == stock.json["refused"]
    if conf == LOSSLESS:
        assert pleat.json["gradients"] == stock.json["gradients"]


NO_ROOM = """
    import re, resource, torch, pleat_test_support as t
    torch.set_num_threads(1)
    size = 16 << 20
    leaf = torch.where(torch.arange(size) % 3 == 0, 0.25, -0.2).requires_grad_()
    y = (leaf * 2) * leaf                                    # 64 MiB are saved, compressed and freed
    limit = t.status_kib("VmSize") + (96 << 10)
    def text(error):
        return re.sub(r"\\d{6,}", "N", str(error))
    resource.setrlimit(resource.RLIMIT_AS, (limit << 10, resource.RLIM_INFINITY))
    taken, errors = [], {}
    for smaller in (64 << 20, 1 << 20):                      # all that is left
        try:
            while len(taken) < 4096:
                taken.append(torch.empty(smaller, dtype=torch.uint8))
        except RuntimeError as error:
            errors["stock's"] = text(error)
    try:
        y.grad_fn._saved_self
    except RuntimeError as error:
        errors["restoring"] = [type(error).__name__, len(error.args), text(error), str(4 * size) + " bytes" in str(error)]
    taken.clear()
    restored = y.grad_fn._saved_self
    t.emit(errors=errors, same=torch.equal(restored, leaf.detach() * 2))
"""


def test_out_of_memory_in_a_restore_raises_stocks_error_and_the_job_continues(run_script):
    result = run_script(NO_ROOM, conf=LOSSLESS, fresh=True).active(encoded=1)
    stocks = result.json["errors"]["stock's"]
    assert "DefaultCPUAllocator: can't allocate memory" in stocks  # matched by searches for a batch size
    name, arguments, text, names_the_bytes = result.json["errors"]["restoring"]
    assert name in ("RuntimeError", "OutOfMemoryError") and arguments == 1
    assert text.startswith(stocks) and names_the_bytes
    assert "Pleat: out of memory while restoring a saved tensor" in text[len(stocks) :]
    assert result.json["same"]


IDLE = """
    import os, sys, time, torch, pleat_test_support as t
    torch.set_num_threads(1)
    kept = torch.ones(32 << 20, dtype=torch.uint8)
    before = t.status_kib("VmRSS")
    large = torch.ones(300 << 20, dtype=torch.uint8)
    used = t.status_kib("VmRSS") - before
    del large
    end = time.monotonic() + 20                   # in numpy, pandas, a database: not in torch
    while t.status_kib("VmRSS") - before > 10 << 10 and time.monotonic() < end:
        time.sleep(0.1)
    left = t.status_kib("VmRSS") - before
    torch.ones(32 << 20, dtype=torch.uint8)       # in use again
    child = os.fork()
    if child == 0:
        os._exit(0)
    threads = len(os.listdir("/proc/self/task"))  # a newer Python warns of a fork with several
    os.waitpid(child, 0)
    again = torch.ones(300 << 20, dtype=torch.uint8)
    t.emit(used=used, left=left, threads=threads, last=[int(again[-1]), int(kept[-1])])
"""


def test_memory_that_torch_has_freed_is_others_soon(run_pair):
    pair = run_pair(IDLE, conf=LOSSY, fresh=True)
    stock, pleat = pair.stock.check().json, pair.pleat.check().json
    assert pleat["used"] > 290 << 10
    assert pleat["left"] < 10 << 10, "KiB stay resident though nobody uses torch"
    assert pleat["threads"] == stock["threads"]
    assert pleat["last"] == stock["last"] == [1, 1]
