"""The visible behaviour of torch's CUDA allocator for scripts, as one line of JSON by topic. Addresses are relative to the first
segment; an error is shown by its text.

    surface.py [TOPIC...]"""

import gc
import json
import re
import sys
import threading

import torch
from torch import nn

TOPICS = {}


def topic(function):
    TOPICS[function.__name__] = function
    return function


def stats():
    return dict(torch.cuda.memory_stats())


def short():
    """The figures that most topics report."""
    now = torch.cuda.memory_stats()
    names = ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
    return {name: [now.get(f"{name}.all.{kind}", 0) for kind in ("current", "peak", "allocated", "freed")] for name in names}


def text_of(error):
    text = re.sub(r"[Pp]rocess \d+", "process N", str(error))
    return f"{type(error).__name__}: {re.sub('0x[0-9a-f]+', 'ADDRESS', text)}"


def tried(function):
    try:
        return function()
    except Exception as error:
        return text_of(error)


STREAMS = {}  # their handles, numbered by first use


def relative(value, base, name=None):
    """Addresses of a snapshot relative to `base`; streams are numbered."""
    if name == "stream":
        return STREAMS.setdefault(value, len(STREAMS))
    if isinstance(value, dict):
        return {key: relative(item, base, key) for key, item in value.items() if key not in ("time_us", "compile_context")}
    if isinstance(value, (list, tuple)):
        return [relative(item, base) for item in value]
    if isinstance(value, int) and value >= base > 0:
        return value - base
    return value


def segments_now():
    return tried(torch.cuda.memory_snapshot)


def first_address():
    now = segments_now()
    return min((segment["address"] for segment in now), default=0) if isinstance(now, list) else 0


def model():
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256))]
    return nn.Sequential(*layers).cuda()


def train(steps=3):
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(steps):
        x = torch.full((128, 256), 0.5, device="cuda")
        loss = net(x).softmax(-1).square().mean()
        del x
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss


@topic
def before_use():
    return [torch.cuda.memory.get_allocator_backend(), torch.cuda.is_initialized(), torch.cuda.memory_allocated(), tried(stats)]


@topic
def training():
    train()
    return stats()


@topic
def resets():
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    train(1)
    return [stats(), torch.cuda.memory_summary(), torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]


@topic
def accelerator():
    x = torch.ones(1 << 18, device="cuda")
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    y = x * 2
    del y
    return [torch.accelerator.memory_allocated(), torch.accelerator.max_memory_allocated(), torch.accelerator.memory_reserved(),
            torch.accelerator.max_memory_reserved(), dict(torch.accelerator.memory_stats()),
            tried(torch.accelerator.get_memory_info), torch.accelerator.empty_cache()]  # fmt: skip


@topic
def free_memory():
    return [torch.cuda.mem_get_info(), torch.cuda.get_device_properties(0).total_memory]


@topic
def history():
    def record():
        torch.cuda.memory._record_memory_history(stacks="python")
        w = torch.ones(256, 256, device="cuda", requires_grad=True)
        (w.sin() @ w).exp().sum().backward()
        x = torch.empty(1 << 20, device="cuda")
        del x
        taken = torch.cuda.memory._snapshot()
        torch.cuda.memory._record_memory_history(enabled=None)
        return relative(taken, first_address())

    return tried(record)


@topic
def segments():
    train(1)
    held = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (1, 512, 513, 1 << 20, (1 << 20) + 1, 3 << 20, 12 << 20)]
    del held[1::2]
    return relative(segments_now(), first_address())


@topic
def out_of_memory():
    seen = []

    def observe(device, asked, total, free):
        seen.append([device, asked, total, free])

    tried(lambda: torch._C._cuda_attach_out_of_memory_observer(observe))
    held = torch.ones(1 << 20, device="cuda")
    texts = [tried(lambda: torch.empty(1 << bits, device="cuda").shape) for bits in (40, 34, 33)]
    return [texts, seen, held.numel(), short(), stats().get("num_ooms"), stats().get("num_alloc_retries")]


@topic
def fraction():
    result = [tried(torch.cuda.get_per_process_memory_fraction)]
    result.append(tried(lambda: torch.cuda.set_per_process_memory_fraction(0.01)))
    result.append(tried(lambda: torch.empty(1 << 29, device="cuda").shape))
    result.append(tried(torch.cuda.get_per_process_memory_fraction))
    torch.cuda.set_per_process_memory_fraction(1.0)
    result.append(tried(lambda: torch.empty(1 << 20, device="cuda").shape))
    return result


@topic
def empty_cache():
    train(1)
    before = short()
    gc.collect()
    torch.cuda.empty_cache()
    return [before, short(), torch.cuda.memory_reserved()]


@topic
def record_stream():
    """Lag is long: a block with a pending event stays until the host waits."""
    side = torch.cuda.Stream()
    x = torch.ones(1 << 20, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
    x.record_stream(side)
    place, result = x.data_ptr(), [short()]
    del x
    result.append(short())
    z = torch.empty(1 << 20, device="cuda")
    result += [short(), z.data_ptr() == place]
    del z
    torch.cuda.synchronize()
    z = torch.empty(1 << 20, device="cuda")
    result += [short(), y.numel(), tried(lambda: torch.ones(3).record_stream(side))]
    return result


@topic
def graphs():
    w = torch.ones(128, 128, device="cuda", requires_grad=True)
    w.grad = torch.zeros_like(w)
    graph, other = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()

    def captured():
        with torch.cuda.graph(graph):
            y = (w @ w).tanh()
            y.sum().backward()
            del y
        with torch.cuda.graph(other, pool=graph.pool()):
            z = (w @ w).sin()
        graph.replay()
        other.replay()
        torch.cuda.synchronize()
        return z

    z = tried(captured)
    result = [z if isinstance(z, str) else z.shape, short(), relative(segments_now(), first_address())]
    del z
    graph.reset()
    other.reset()
    return [*result, short()]


@topic
def pools():
    def use():
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(1 << 22, device="cuda")
            inner = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(inner):
                y = torch.empty(1 << 20, device="cuda")
            z = torch.empty(1 << 18, device="cuda")
        outside = torch.empty(1 << 18, device="cuda")
        seen = [pool.use_count(), inner.use_count(), relative(pool.snapshot(), first_address()), len(inner.snapshot()), short()]
        del x, z, outside
        seen.append(short())
        torch.cuda.empty_cache()
        seen += [short(), y.shape]
        del pool, inner, y
        gc.collect()
        torch.cuda.empty_cache()
        return [*seen, short()]

    return tried(use)


@topic
def pool_in_need():
    def use():
        pool = torch.cuda.MemPool(use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(9 << 30, dtype=torch.uint8, device="cuda")
        del x
        y = torch.empty(9 << 30, dtype=torch.uint8, device="cuda")
        return [y.shape, short()]

    return tried(use)


@topic
def checkpoints():
    """For cudagraph trees: the state of a graph's pool, kept and set again."""

    def use():
        pool = torch.cuda.graph_pool_handle()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        x = torch.ones(1 << 18, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            y = x * 2
            z = y + 1
            del z
        state = torch._C._cuda_getCheckpointState(0, pool)
        seen = [torch._C._cuda_checkPoolLiveAllocations(0, pool, {y.untyped_storage().data_ptr()}),
                torch._C._cuda_checkPoolLiveAllocations(0, pool, set()), short()]  # fmt: skip
        later = torch.cuda.CUDAGraph()
        with torch.cuda.graph(later, pool=pool, stream=stream):
            more = [y * i for i in range(3)]
        stale = [tensor.untyped_storage()._cdata for tensor in more]
        torch._C._cuda_setCheckpointPoolState(0, state, stale, [])
        seen += [short(), torch._C._cuda_checkPoolLiveAllocations(0, pool, {y.untyped_storage().data_ptr()})]
        seen += [torch._C._has_Standard_Deleter(tensor.untyped_storage()._cdata) for tensor in (y, *more)]
        del more
        place, size = y.untyped_storage().data_ptr(), y.untyped_storage().nbytes()
        seen.append(short())
        del y
        seen.append(short())
        again = torch._C._construct_storage_from_data_pointer(place, torch.device("cuda", 0), size)
        torch._C._cuda_setCheckpointPoolState(0, state, [], [again._cdata])
        seen += [torch._C._has_Standard_Deleter(again._cdata), short()]
        del again
        seen.append(short())
        torch._C._cuda_beginAllocateCurrentThreadToPool(0, pool)
        inside = torch.empty(1 << 10, device="cuda")
        torch._C._cuda_endAllocateToPool(0, pool)
        torch._C._cuda_releasePool(0, pool)
        seen += [inside.shape, short()]
        return seen

    return tried(use)


@topic
def tracing():
    """The callbacks that torch.cuda._sanitizer registers."""
    from torch.cuda import _gpu_trace

    seen, numbers = [], {}  # numbers of addresses by first use
    for name in ("memory_allocation", "memory_deallocation", "event_creation", "event_record", "event_wait", "stream_synchronization"):
        register = getattr(_gpu_trace, f"register_callback_for_{name}")
        register(lambda *what, name=name: seen.append([name, *(numbers.setdefault(w, len(numbers)) for w in what)]))
    torch._C._activate_gpu_trace()
    w = torch.ones(128, 128, device="cuda", requires_grad=True)
    (w.sin() @ w).exp().sum().backward()
    del w
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    side.synchronize()
    return seen


@topic
def raw_memory():
    from torch.cuda.memory import caching_allocator_alloc, caching_allocator_delete

    before = short()
    address = caching_allocator_alloc(5000)
    held = short()
    caching_allocator_delete(address)
    return [before, held, short()]


@topic
def wrong_free():
    return [tried(lambda: torch.cuda.memory.caching_allocator_delete(12345)), short()]


@topic
def pinned():
    x = torch.ones(1000, pin_memory=True)
    y = x.to("cuda", non_blocking=True)
    del x
    torch.cuda.synchronize()
    now = torch.cuda.host_memory_stats()
    return [y.shape, {name: value for name, value in now.items() if "time" not in name}]


@topic
def other_processes():
    def share():
        x = torch.ones(1 << 19, device="cuda")
        y = x[1 << 18 :].clone()
        device, _, size, offset, _, _, _, _ = y.untyped_storage()._share_cuda_()
        return [device, size, offset]

    return tried(share)


@topic
def settings():
    return [tried(lambda: torch.cuda.memory._set_allocator_settings("max_split_size_mb:64,roundup_power2_divisions:4")),
            tried(lambda: [torch.empty(3 << 20, device="cuda").shape, short()]),
            tried(lambda: torch.cuda.memory._set_allocator_settings("nonsense:1"))]  # fmt: skip


@topic
def another_allocator():
    def change():
        library = next(line.split()[-1] for line in open("/proc/self/maps") if "sim-cudart.so" in line)
        torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(library, "cudaMalloc", "cudaFree"))

    return tried(change)


@topic
def other_threads():
    held = [torch.ones(1 << 18, device="cuda") for _ in range(4)]
    thread = threading.Thread(target=held.clear)  # has no context
    thread.start()
    thread.join()
    return short()


@topic
def failed_capture():
    """Must be last: torch 2.11 still assumes a running capture afterwards."""
    graph = torch.cuda.CUDAGraph()

    def capture():
        with torch.cuda.graph(graph):
            x = torch.ones(1 << 18, device="cuda") * 2
            torch.cuda.synchronize()
            return x

    result = [tried(capture)]
    torch.cuda.get_rng_state()
    return [*result, tried(lambda: (torch.ones(5, device="cuda") * 2).sum().shape), short()]


if __name__ == "__main__":
    print(json.dumps({name: tried(TOPICS[name]) for name in sys.argv[1:] or TOPICS}, default=str))
