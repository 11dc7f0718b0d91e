"""Saved CUDA tensors are right for all streams, devices and threads of a script, and every pair of conflicting accesses is ordered:
values equal stock's, and the oracle is silent."""

import pytest

from codings import CODINGS, titled

pytest_plugins = ("simulated",)

SCRIPTS = {}


def script(text):
    SCRIPTS.update([titled(text)])


script("""
    # used on a second stream without record_stream and given up at once
    # The graph holds x for stock. Under Pleat its block may be free, and written on the first stream, at once.
    second = torch.cuda.Stream()
    w = made(1 << 14)
    torch.cuda.synchronize()
    for i in range(4):
        x = w.sin()
        second.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(second):
            loss = total((x * w).exp())
        del x
        others = [filled(i) for i in range(4)]
        torch.cuda.current_stream().wait_stream(second)
        loss.backward()
        del loss
    emit(w=host(w.grad), others=host(*others))
""")
script("""
    # saved on one stream, read and freed on another
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    w = made(1 << 14)
    torch.cuda.synchronize()
    grads = []
    for i in range(4):
        with torch.cuda.stream(first):
            x = w.sin()
            y = x.exp()  # saves its result
            total(y)
            held = y.grad_fn
            del x, y
            others = [filled(i) for i in range(3)]
        second.wait_stream(first)
        with torch.cuda.stream(second):
            grads.append(held._saved_result.detach() * 2)
            del held
        first.wait_stream(second)
        with torch.cuda.stream(first):
            others.append(filled(9))
    emit(grads=host(*grads), others=host(*others))
""")
script("""
    # released behind what the reading stream waits for
    # The second stream waits for the values, and not for what becomes of them when they are released.
    first, second, third = (torch.cuda.Stream() for _ in range(3))
    w = made(1 << 14)
    torch.cuda.synchronize()
    grads = []
    for i in range(4):
        with torch.cuda.stream(first):
            x = w.sin()
            y = x.exp()
            total(y)
            held = y.grad_fn
        second.wait_stream(first)
        third.wait_stream(first)
        with torch.cuda.stream(first):
            del x, y
            others = [filled(i) for i in range(3)]
        for stream in (second, third):
            with torch.cuda.stream(stream):
                grads.append(held._saved_result.detach() * 2)
        torch.cuda.synchronize()
        del held
    emit(grads=host(*grads), others=host(*others))
""")
script("""
    # dropped while another stream reads
    # The script says that the second stream reads; what is read there may be a payload still when the graph is dropped.
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    w = made(1 << 14)
    torch.cuda.synchronize()
    grads, kept = [], []
    for i in range(6):
        with torch.cuda.stream(first):
            x = w.sin()
            y = x.exp()
            total(y)
            held = y.grad_fn
            del x, y
            filled(i)
        second.wait_stream(first)
        with torch.cuda.stream(second):
            read = held._saved_result
            read.record_stream(second)
            grads.append(read.detach() * 2)
            del read, held
        with torch.cuda.stream(first):
            z = w.cos() * (i + 1)
            kept.append(total(z * z))
            del z  # is coded where the payload lay
            filled(i)
    torch.cuda.synchronize()
    sum(kept).backward()
    emit(grads=host(*grads, w.grad))
""")
script("""
    # a side stream in forward
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    model = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
    for i, p in enumerate(model.parameters()):
        p.data.copy_(noise(*p.shape, seed=i))
    model.cuda()
    for step in range(3):
        x = noise(64, 32, seed=step).cuda()
        side.wait_stream(main)
        x.record_stream(side)
        with torch.cuda.stream(side):
            a = functional.gelu(model[1](functional.gelu(model[0](x))))
        b = functional.gelu(model[3](functional.gelu(model[2](x))))
        main.wait_stream(side)
        a.record_stream(main)
        total(a * b).backward()
        del a, b, x
    emit(grads=host(*(p.grad for p in model.parameters())))
""")
script("""
    # backward called under a third stream
    side, third, main = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.current_stream()
    w = weight(64, 64)
    torch.cuda.synchronize()
    for step in range(3):
        x = noise(64, 64, seed=step).cuda()
        side.wait_stream(main)
        x.record_stream(side)
        with torch.cuda.stream(side):
            loss = total(((x @ w).tanh() @ w).exp())
        del x
        third.wait_stream(side)
        with torch.cuda.stream(third):
            loss.backward()
        main.wait_stream(third)
        main.wait_stream(side)
        others = [filled(step) for _ in range(4)]
    emit(grads=host(w.grad), others=host(*others))
""")
script("""
    # priorities, per-device streams and record_stream
    low, high = torch.cuda.Stream(priority=0), torch.cuda.Stream(priority=-1)
    w = made(1 << 12)
    torch.cuda.synchronize()
    for step in range(3):
        with torch.cuda.stream(low):
            x = w.exp()
            x.record_stream(high)
            high.wait_stream(low)
            with torch.cuda.stream(high):
                y = x.sin()
                loss = total(y)
            y.record_stream(low)
            del x
            filled(step)
            low.wait_stream(high)
            loss.backward()
            del y, loss
    emit(grads=host(w.grad))
""")
script("""
    # two devices
    # The current device is the first throughout; its stream is none of the second's.
    a, b = made(64, 64, seed=1), weight(64, 64, seed=2, device="cuda:1")
    side = torch.cuda.Stream(device="cuda:1")
    for step in range(3):
        x = (a @ a).sin()
        y = x.to("cuda:1")
        del x
        main = torch.cuda.current_stream(1)
        side.wait_stream(main)
        y.record_stream(side)
        torch.cuda.set_stream(side)  # of the second device, and makes that one the current
        torch.cuda.set_device(0)
        z = (y @ b).tanh()
        del y
        filled(step, device="cuda:1")
        main.wait_stream(side)
        z.record_stream(main)
        torch.cuda.set_stream(main)
        torch.cuda.set_device(0)
        back = (z * 2).to("cuda:0")  # on a side stream torch itself would not wait for the gradient's copy
        del z
        total(back * a).backward()
        del back
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    emit(a=host(a.grad), b=host(b.grad))
""")
script("""
    # saved on one device and read on another
    a = made(1 << 12)
    y = (a.sin()).exp()
    total(y)
    node = y.grad_fn
    del y
    torch.cuda.set_device(1)
    with torch.cuda.stream(torch.cuda.Stream(device=1)):
        read = node._saved_result.to("cuda:1") + 1
    emit(read=host(read))
""")
script("""
    # autocast and a scaler with a step that overflows
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8))
    for i, p in enumerate(model.parameters()):
        p.data.copy_(noise(*p.shape, seed=i) * 0.2)
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    scales = []
    for step in range(4):
        x = noise(16, 32, seed=step).cuda()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = functional.mse_loss(model(x).float(), torch.zeros(16, 8, device="cuda"))
        scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
    assert scales == [1024.0, 512.0, 512.0, 512.0], scales
    emit(parameters=host(*model.parameters()))
""")
script("""
    # checkpoint reentrant and not
    from torch.utils.checkpoint import checkpoint
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.Tanh())
    for i, p in enumerate(model.parameters()):
        p.data.copy_(noise(*p.shape, seed=i) * 0.2)
    model.cuda()
    x = made(16, 32, seed=9)
    for reentrant in (True, False):
        inner = x * 2  # no leaf
        y = checkpoint(model, inner, use_reentrant=reentrant)
        del inner
        total(checkpoint(model, y, use_reentrant=reentrant).exp()).backward()
        del y
    emit(grads=host(x.grad, *(p.grad for p in model.parameters())))
""")
script("""
    # double backward
    w, x = weight(32, 32, seed=1), made(32, 32, seed=2)
    hidden = True  # a constant in the call makes all of the script exact
    for step in range(2):
        y = total((x @ w).tanh().exp())
        first, = torch.autograd.grad(y, x, create_graph=hidden)
        del y
        (first * first).sum().backward()
        del first
    emit(grads=host(w.grad, x.grad))
""")
script("""
    # retain_graph
    w = weight(64, 64)
    y = total(((made(64, 64, seed=2) @ w).sin() @ w).exp())
    y.backward(retain_graph=True)
    filled()
    y.backward(retain_graph=True)
    y.backward()
    emit(grads=host(w.grad))
""")
script("""
    # a captured training step
    w = weight(64, 64)
    w.grad = torch.zeros_like(w)
    x = torch.zeros(64, 64, device="cuda")
    v, u = made(64, 64, seed=2), weight(64, 64, seed=3)
    before = total((v.sin() @ u).exp())  # saved before, and used behind the graph

    def step():
        y = ((x @ w).tanh() @ w).sin()
        (y @ u).sum().backward()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    w.grad.zero_()
    with torch.cuda.graph(graph):
        step()
    grads = []
    for i in range(3):
        x.copy_(noise(64, 64, seed=i))
        w.grad.zero_()
        graph.replay()
        grads += host(w.grad)
        filled(i)
    before.backward()
    emit(grads=grads, outside=host(v.grad))
""")
script("""
    # a block released while another stream captures
    w = made(1 << 12)
    y = w.sin().exp()
    z = total(y.tanh())
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(100, device="cuda")
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        x += 1
        del y  # its encode may not become part of the graph
        seen = x * 2
    others = [filled(i, 1 << 12) for i in range(3)]
    graph.replay()
    graph.replay()
    z.backward()
    emit(x=host(x), seen=host(seen), grads=host(w.grad), others=host(*others))
""")
script("""
    # make_graphed_callables
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32))
    for i, p in enumerate(model.parameters()):
        p.data.copy_(noise(*p.shape, seed=i) * 0.2)
    model.cuda()
    sample = two_values(16, 32, seed=1).cuda().requires_grad_()
    graphed = torch.cuda.make_graphed_callables(model, (sample,))
    tail = nn.Linear(32, 32, bias=False).cuda()
    tail.weight.data.copy_(noise(32, 32, seed=8) * 0.2)
    grads = []
    for step in range(3):
        x = made(16, 32, seed=step)
        model.zero_grad()
        total(tail(graphed(x.sin())).exp()).backward()
        grads += host(x.grad, *(p.grad for p in model.parameters()))
    emit(grads=grads)
""")
script("""
    # MemPool
    v, w = made(64, 64, seed=2), weight(64, 64)
    pool = torch.cuda.MemPool()
    for step in range(3):
        x = (v @ w).sin()
        with torch.cuda.use_mem_pool(pool):
            y = (x @ w).tanh()
            z = y.exp()
        total(z * x).backward()
        del x, y, z
    used = pool.use_count()
    emit(grads=host(w.grad), used=used, segments=len(pool.snapshot()))
""")
script("""
    # pinned offload
    v, w = made(64, 64, seed=2), weight(64, 64)
    for step in range(3):
        outside = (v @ w).sin()
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            y = (outside @ w).tanh().exp()
        total(y * outside).backward()
        del outside, y
    emit(grads=host(w.grad))
""")
for workers in (0, 1):
    script(f"""
    # DataLoader with pinning, {workers} workers
    data = torch.utils.data.TensorDataset(noise(32, 64, seed=3), noise(32, 64, seed=4))
    w = weight(64, 64)
    torch.cuda.synchronize()
    for x, y in torch.utils.data.DataLoader(data, batch_size=8, pin_memory=True, num_workers={workers}):
        assert x.is_pinned()
        x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
        total((x @ w).tanh().exp() * y).backward()
        del x, y
    emit(grads=host(w.grad))
    """)
script("""
    # threads that train side by side
    weights = [weight(64, 64, seed=i) for i in range(3)]
    torch.cuda.synchronize()
    broken = []

    def train(w):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for step in range(5):
                    x = noise(32, 64, seed=step).cuda()
                    total(((x @ w).tanh() @ w).sin()).backward()
                    filled(step)
            stream.synchronize()
        except BaseException as error:
            broken.append(repr(error))

    threads = [threading.Thread(target=train, args=(w,)) for w in weights]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    emit(grads=host(*(w.grad for w in weights)), broken=broken)
""")


@pytest.mark.parametrize("lag, seed", [(0, 0), (40, 1)])
@pytest.mark.parametrize("conf", CODINGS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_saved_tensors_are_stocks_in_every_order_of_streams(name, conf, lag, seed, same_as_stock):
    same_as_stock(SCRIPTS[name], conf, lag=lag, seed=seed, devices=2 if "device" in name else 1)
