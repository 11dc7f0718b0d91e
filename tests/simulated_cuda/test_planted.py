"""Each bug planted in Pleat's handling of CUDA devices (planted.cmake) is found by the oracle or the values. Without a bug the
same scripts pass."""

import pytest

from codings import titled
from conftest import IN_CI, assert_close, assert_identical

pytest_plugins = ("simulated",)

MOST_SEEDS = 20
LOSSLESS = "cuda:1,bits:lossless,min_bytes:0"
LOSSY = "cuda:1,bits:4,min_bytes:0"
NOISE = 0.3  # of a gradient's norm, at 4 bits

BUGS = {}


def bug(conf, text, **options):
    """A bug, named by the first line of `text`, and a script that shows it with these options of simulate.py."""
    name, source = titled(text)
    BUGS[name] = (conf, source, options)


bug(LOSSY, """
    # encode not after the last use
    # The block is the first stream's; what it holds is written, and saved, on a second one.
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    w, source = made(1 << 14), noise(1 << 14, seed=2).cuda()
    for step in range(3):
        x = torch.empty(1 << 14, device="cuda")
        side.wait_stream(main)
        with torch.cuda.stream(side):
            x.copy_(source)
            y = total(w * x)
            del x
        main.wait_stream(side)
        y.backward()
        del y
    emit(grads=host(w.grad))
""")
bug(LOSSY, """
    # source back before its encode
    second, main = torch.cuda.Stream(), torch.cuda.current_stream()
    w = made(1 << 14)
    torch.cuda.synchronize()
    for step in range(3):
        x = w.sin()
        second.wait_stream(main)
        with torch.cuda.stream(second):
            y = total((x * w).exp())
        del x
        others = [filled(step) for _ in range(3)]
        main.wait_stream(second)
        y.backward()
        del y
    emit(grads=host(w.grad), others=host(*others))
""")
bug(LOSSLESS, """
    # gated source reused
    # Values without a shorter form, so the payload is refused. What was its source's memory is written at once, wherever that lies.
    w = (noise(1 << 14, seed=1) * 20).cuda().requires_grad_()
    grads, others = [], []
    for step in range(3):
        y = w.exp()
        node = y.grad_fn
        del y
        others += [filled(float(i)) for i in range(30)]
        grads.append(node._saved_result.detach() * 2)
        del node
    emit(grads=host(*grads), others=host(*others))
""")
bug(LOSSLESS, """
    # verdict believed early
    w = noise(1 << 14, seed=1).cuda().requires_grad_()
    grads = []
    for step in range(3):
        y = w.exp()
        node = y.grad_fn
        del y
        others = [filled(float(i)) for i in range(3)]
        grads.append(node._saved_result.detach() * 2)
        del node
    emit(grads=host(*grads), others=host(*others))
""", lag=400)
bug(LOSSY, """
    # encode under capture
    # Saved outside of the graph, and given up while its stream captures. The graph does not run before it is read.
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    w, count = made(1 << 14), torch.zeros(100, device="cuda")
    side.wait_stream(main)
    with torch.cuda.stream(side):
        y = w.exp()
        total(y)
        node = y.grad_fn
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        count += 1
        del y
    read = node._saved_result.detach() * 2
    graph.replay()
    emit(read=host(read), count=host(count))
""")
bug(LOSSY, """
    # encode after a late proof on the proving thread's stream
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    data = noise(64, 32, seed=1).cuda()
    first, last = (nn.Parameter(noise(*shape, seed=2).cuda()) for shape in ((32, 256), (256, 16)))
    for step in range(3):
        x = data @ first
        y = functional.gelu(x)
        del x  # waits for a proof
        side.wait_stream(main)
        others = [filled(step) for _ in range(3)]
        with torch.cuda.stream(side):
            z = y @ last  # which this is
        others += [filled(step) for _ in range(3)]
        main.wait_stream(side)
        z.sum().backward()
        del y, z
    emit(grads=host(first.grad, last.grad), others=host(*others))
""")
bug(LOSSY, """
    # payload freed under a decode
    second, main = torch.cuda.Stream(), torch.cuda.current_stream()
    w = made(1 << 14)
    torch.cuda.synchronize()
    reads = []
    for step in range(4):
        y = w.exp()
        total(y)
        node = y.grad_fn
        del y
        second.wait_stream(main)
        with torch.cuda.stream(second):
            read = node._saved_result.detach()
            reads.append(read * 2)
            read.record_stream(second)  # with stock the block is the first stream's
            del read, node
    main.wait_stream(second)
    emit(reads=host(*reads))
""")
bug(LOSSY, """
    # restore read elsewhere without a wait
    first, second, main = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.current_stream()
    w = made(1 << 14)
    y = w.exp()
    total(y)
    node = y.grad_fn
    del y
    first.wait_stream(main)
    second.wait_stream(main)
    with torch.cuda.stream(first):
        a = node._saved_result
        b = a * 2
    with torch.cuda.stream(second):
        c = node._saved_result * 3
    main.wait_stream(first)
    main.wait_stream(second)
    emit(reads=host(a, b, c))
""")
bug(LOSSLESS, """
    # two restores of one payload at once
    # Each restored storage is written to, so each read restores the payload once more.
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    w = noise(1 << 17, seed=1).relu().cuda().requires_grad_()
    y = w.exp()
    node = y.grad_fn
    del y
    torch.cuda.synchronize()
    filled()
    reads = []
    for step in range(4):
        with torch.cuda.stream((main, side)[step % 2]):
            reads.append(node._saved_result.detach() * 2)
    main.wait_stream(side)
    emit(reads=host(*reads))
""")
bug(LOSSY, """
    # the current device's stream for another device's tensor
    # Torch's first stream is 0 on either device.
    first, w = filled(), made(1 << 14, device="cuda:1")
    grads = []
    for step in range(3):
        y = w.exp()  # the current device is the first
        total(y)
        node = y.grad_fn
        del y
        filled(step, device="cuda:1")
        grads.append(node._saved_result.detach() * 2)
        del node
    torch.cuda.synchronize(1)
    emit(grads=host(*grads))
""", devices=2)
bug(LOSSY, """
    # event of a destroyed stream
    driver = __import__("ctypes").CDLL("libcuda.so.1")
    from ctypes import byref, c_void_p
    w = made(1 << 12)
    torch.cuda.synchronize()
    handle = c_void_p()
    assert driver.cuStreamCreate(byref(handle), 1) == 0
    stream = torch.cuda.ExternalStream(handle.value)
    with torch.cuda.stream(stream):
        y = w.exp()
        total(y)
        node = y.grad_fn
    torch.cuda.current_stream().wait_stream(stream)
    assert driver.cuStreamSynchronize(handle) == 0
    assert driver.cuStreamDestroy_v2(handle) == 0
    del y, stream
    read = node._saved_result.detach() * 2
    del node
    others = [filled(i, 1 << 12) for i in range(4)]
    emit(read=host(read), others=host(*others))
""")
bug(LOSSY, """
    # driver call in a child
    import os
    second, main = torch.cuda.Stream(), torch.cuda.current_stream()
    w = made(1 << 14)
    y = w.exp()
    total(y)
    node = y.grad_fn
    del y
    second.wait_stream(main)
    with torch.cuda.stream(second):
        read = node._saved_result.detach() * 2
    child = os.fork()
    if child == 0:
        del node  # its payload was read on another stream
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    main.wait_stream(second)
    assert code == 0
    emit(read=host(read))
""")
bug(LOSSY, """
    # call after DEINITIALIZED
    w = made(1 << 14)
    y = w.exp()
    total(y)
    node = y.grad_fn
    del y
    emit(read=host(node._saved_result))
""", wind_down=True)


@pytest.fixture(scope="session")
def planted(simulator, stand_ins, build_dir, torch_version):
    """Runs a script under Pleat with a bug, or without one."""
    version = ".".join(torch_version.split(".")[:2])
    folder = build_dir / "lib" / "planted"
    late_start = build_dir / "lib" / "libtest_late_start.so"
    for file in ("libpleat.so", f"libpleat_bridge_torch{version}.so", f"libpleat_cuda_torch{version}.so"):
        if not (folder / file).exists():
            (pytest.fail if IN_CI else pytest.skip)(f"{folder / file} is not built")

    def run(name, source, conf, **options):
        preload = (folder / "libpleat.so", late_start)
        outcome = simulator.run(source, preload=preload, conf=conf, variables={"PLEAT_PLANTED": name}, **options)
        if "no kernels for CUDA" in outcome.stderr:
            pytest.skip("this build has no kernels for CUDA")
        assert "no bug is called" not in outcome.stderr
        return outcome

    return run


def objection(outcome, stock, exact):
    """The objection of the oracle or the values to a run; None if there is none."""
    if outcome.code != 0:
        return f"exit code {outcome.code}, {outcome.reports if outcome.facts else None}, {outcome.stderr[-300:]}"
    try:
        if exact:
            assert_identical(outcome.values, stock.values)
        else:
            assert_close(outcome.values, stock.values, NOISE)
    except AssertionError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_and_the_script_passes_without_it(name, planted, simulator):
    conf, source, options = BUGS[name]
    options, exact = {"lag": 40} | options, conf == LOSSLESS
    stock = simulator.once(source, devices=options.get("devices", 1))
    assert stock.code == 0 and stock.reports == []
    for seed in range(2):
        right = planted("", source, conf, seed=seed, **options)
        assert objection(right, stock, exact) is None
        assert sum(device["records"]["released"] for device in right.stats["devices"]) > 0
    for seed in range(MOST_SEEDS):
        if found := objection(planted(name, source, conf, seed=seed, **options), stock, exact):
            print(f"seed {seed}: {found}")
            return
    pytest.fail(f"not found at {MOST_SEEDS} seeds")
