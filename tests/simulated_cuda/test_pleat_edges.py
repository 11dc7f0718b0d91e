"""Saved CUDA tensors of odd sizes and kinds, and memory that scripts manage by hand: values equal stock's, and the oracle is
silent."""

import pytest

from codings import CODINGS, titled

pytest_plugins = ("simulated",)

SCRIPTS = {}


def script(text):
    SCRIPTS.update([titled(text)])


script("""
    # an empty tensor before the device is used
    empty = torch.zeros(0).to("cuda").requires_grad_()
    empty.sin().exp().sum().backward()
    w = made(1 << 12)
    x = w.sin()
    y = total(x.exp())
    del x
    filled()
    y.backward()
    emit(grads=host(empty.grad, w.grad))
""")
script("""
    # sizes about a granule, one element and none
    filled()
    grads = []
    for count in (0, 1, 2, 127, 128, 129, 255, 256, 257, 1023):
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
            x = activations(noise(count, seed=count).to("cuda", dtype))
            y = x.sin().exp()
            filled(count)
            z = total(y.tanh() * y)
            del y
            z.backward()
            grads.append(x.grad.float())
    x = made(1000)
    keep = (x > 0) & (x < 1)  # bytes
    one = torch.ones(1, dtype=torch.uint8, device="cuda")
    y = total(torch.where(keep, x, one).exp())
    del keep, one
    filled(3)
    y.backward()
    emit(grads=host(*grads, x.grad))
""")
script("""
    # views with gaps, overlaps and other dtypes of one storage
    w = made(64, 96)
    base = w.sin()
    parts = [base[:, ::3], base[::2, 5:40], base.t()[7:9], base.diagonal(), base.unfold(0, 8, 4), base[3:4].expand(5, 96)]
    outs = [total(part.exp() * part) for part in parts]
    numbers = base.detach().view(torch.int32)
    del base, parts
    filled()
    sum(outs).backward()
    del outs
    scale = torch.ones(64, 96, device="cuda", dtype=torch.complex64)
    z = made(64, 96, seed=5)
    total(((z * scale).abs() + torch.view_as_real(scale).sum(-1)).exp()).backward()
    emit(grads=host(w.grad, z.grad), numbers=host(numbers.sum()))
""")
script("""
    # NaN and infinities in every group
    grads = []
    for value in (float("nan"), float("inf"), -float("inf")):
        x = made(4096)
        with torch.no_grad():
            x[::97] = value
        y = x.tanh()
        z = total((y * y).exp())
        del y
        filled()
        z.backward()
        grads.append(x.grad)
    emit(grads=host(*grads))
""")
script("""
    # a shape that changes each step
    w = weight(48, 48)
    for step in range(8):
        x = noise(5 + 37 * (step % 5), 48, seed=step).cuda()
        y = functional.gelu(x @ w)
        z = functional.layer_norm(y, (48,)).relu()
        del y, x
        filled(step)
        total(z.exp()).backward()
        del z
    emit(grads=host(w.grad))
""")
script("""
    # a storage made small and filled again
    w = made(1 << 12)
    x = w.sin()
    y = total(x.exp())
    storage = x.untyped_storage()
    size, copy = storage.nbytes(), x.detach().clone()
    storage.resize_(0)  # as FSDP does between forward and backward
    filled()
    storage.resize_(size)
    with torch.no_grad():
        x.data.copy_(copy)
    z = total(x * x)
    del x
    filled(3)
    (y + z).backward()
    emit(grads=host(w.grad))
""")
script("""
    # data swapped and set
    w, other = made(1 << 12), made(1 << 12, seed=2)
    x = w.sin()
    y = total(x.exp())
    x.data = other.detach().clone()  # what y has saved is not x's any more
    z = total((x.detach() * w).tanh())
    saved = other.cos()
    u = total(saved.exp())
    saved.detach().set_(torch.zeros(5, device="cuda"))
    filled()
    del x, saved
    filled(4)
    (y + z + u).backward()
    emit(grads=host(w.grad, other.grad))
""")
script("""
    # changed in place after it was saved
    w = made(1 << 12)
    x = w.sin()
    y = total(x.exp())
    refused = []
    z = total(x * x)
    with torch.no_grad():
        x.add_(1)
    del x
    filled()
    try:
        z.backward()
    except RuntimeError as error:
        refused.append("modified by an inplace operation" in str(error))
    y.backward()
    emit(grads=host(w.grad), refused=refused)
""")
script("""
    # memory that others hold too
    w = made(1 << 12)
    x = w.sin()
    y = total(x.exp())
    shared = torch.from_dlpack(x.detach())
    interface = x.detach().__cuda_array_interface__
    assert interface["data"][0] == x.data_ptr()
    exported = x.detach().untyped_storage()._share_cuda_()
    z = total(x * x)
    del x
    others = [filled(i, 1 << 12) for i in range(3)]
    (y + z).backward()
    emit(grads=host(w.grad), shared=host(shared), others=host(*others), size=exported[2])
""")
script("""
    # a stream that is destroyed before backward
    driver = __import__("ctypes").CDLL("libcuda.so.1")
    from ctypes import byref, c_void_p
    w = made(1 << 12)
    torch.cuda.synchronize()
    handle = c_void_p()
    assert driver.cuStreamCreate(byref(handle), 1) == 0
    stream = torch.cuda.ExternalStream(handle.value)
    with torch.cuda.stream(stream):
        x = w.sin()
        y = x.exp()
        z = (y * y).tanh()
        total(z)
    main = torch.cuda.current_stream()
    main.wait_stream(stream)
    read = z.grad_fn  # its result is saved; nobody runs it under the stream again
    del x, y, z
    assert driver.cuStreamSynchronize(handle) == 0
    assert driver.cuStreamDestroy_v2(handle) == 0
    del stream
    again = read._saved_result.detach() + 1
    inner = read.next_functions[0][0]._saved_self.detach() * 2
    del read
    others = [filled(i, 1 << 12) for i in range(4)]
    emit(again=host(again, inner), others=host(*others))
""")
script("""
    # freed in a thread without a context, by the garbage collector and in a hook
    w = made(1 << 12)
    graphs = []
    for _ in range(3):
        x = w.sin()
        graphs.append(total(x.exp()))
        del x
    class Ring:
        pass
    ring = Ring()
    ring.self, ring.graph = ring, graphs.pop()
    del ring
    gc.collect()
    y = w.cos()
    z = y.exp()
    loss = total(z)
    holder = [y]
    del y
    z.register_hook(lambda grad: holder.clear())
    thread = threading.Thread(target=graphs.pop)
    thread.start()
    thread.join()
    others = [filled(i, 1 << 12) for i in range(4)]
    (loss + graphs.pop()).backward()
    emit(grads=host(w.grad), others=host(*others))
""")
script("""
    # saved while allocations are freed side by side
    w = made(1 << 12)
    torch.cuda.synchronize()
    stop = threading.Event()

    def churn():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            while not stop.is_set():
                x = activations(torch.ones(1 << 12, device="cuda")) * 2
                total(x.exp()).backward()
                del x

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    for step in range(30):
        x = w.sin()
        y = total(x.exp())
        del x
        y.backward()
        del y
    stop.set()
    for thread in threads:
        thread.join()
    emit(grads=host(w.grad))
""")
script("""
    # out of memory in the middle of a step
    w = made(1 << 12)
    refused = []
    for step in range(3):
        x = w.sin()
        y = total(x * x)
        del x
        try:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError as error:
            refused.append(str(error).startswith("CUDA out of memory. Tried to allocate 1024.00 GiB"))
        y.backward()
        del y
    emit(grads=host(w.grad), refused=refused)
""")
script("""
    # hooks of a script's own
    w = made(1 << 12)
    kept = []

    def pack(tensor):
        kept.append(tensor.detach().cpu())
        return tensor.detach().clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor * 1):
        x = w.sin()
        y = x.exp()
    z = total(x * y)
    del x, y
    filled()
    z.backward()
    emit(grads=host(w.grad), kept=kept)
""")


@pytest.mark.parametrize("lag, seed", [(0, 0), (40, 2)])
@pytest.mark.parametrize("conf", CODINGS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_odd_tensors_are_saved_as_with_stock(name, conf, lag, seed, same_as_stock):
    same_as_stock(SCRIPTS[name], conf, lag=lag, seed=seed)
