"""A recorder's events of saved tensors while a model trains, with their phase and key."""

import pytest

from as_shipped import variables_of
from conftest import LOSSY, STOCK_ONLY, missing

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")

FORWARD, BACKWARD = 1, 2
WIDTHS = {"gelu": 96, "tanh": 72, "sigmoid": 80}

# In two steps Pleat learns the readers of the tensors; two more are recorded.
TRAINED = """
    import ctypes, sys, torch, pleat_test_support as t
    bridge = ctypes.CDLL(sys.argv[1])  # the one that is loaded, or the first to be
    assert bridge.pleat_install_late() == 0
    class Event(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in ("block", "record", "key", "phase")] + [("kind", ctypes.c_char_p)]
    bridge.pleat_test_events.restype = ctypes.c_size_t
    bridge.pleat_test_events.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    def recorded():
        events = (Event * bridge.pleat_test_events(None, 0))()
        bridge.pleat_test_events(events, len(events))
        return [(e.kind.decode(), e.block, e.record, e.key, e.phase) for e in events]
    torch.manual_seed(0)
    linear = torch.nn.Linear
    model = torch.nn.Sequential(
        linear(64, 96), torch.nn.GELU(), linear(96, 72), torch.nn.Tanh(), linear(72, 72), torch.nn.Tanh(),
        linear(72, 80), torch.nn.Sigmoid(), linear(80, 48))
    x = t.noise(256, 64, seed=1)
    def step():
        model(x).sum().backward()
        model.zero_grad()
    step(), step()
    starts = []
    for _ in range(2):
        starts.append(bridge.pleat_test_events(None, 0))
        bridge.pleat_test_record(1)
        step()
        bridge.pleat_test_record(0)
    step()  # heard by nobody
    events = recorded()
    t.emit(steps=[events[: starts[1]], events[starts[1] :]])
"""

MASK = (1 << 64) - 1


def mix(x):
    """The finalizer of SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def fnv(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


FLOAT32 = 6  # at::kFloat


def weight(*sizes, number=1):
    """The structure of the number-th weight of such a shape."""
    kind = mix(FLOAT32 << 8 | len(sizes))
    for size in sizes:
        kind = mix(kind ^ size)
    return mix(mix(kind) ^ number)


def node(name, *inputs):
    """The structure of a node of that class, from its inputs' structures (None: no gradient)."""
    structure = mix(fnv(name))
    for of_input in inputs:
        structure = mix(mix(structure ^ 1) ^ (1 if of_input is None else of_input))
    return structure


def linear(x, inputs, outputs, number=1):
    return node("AddmmBackward0", weight(outputs, number=number), x,
                node("TBackward0", weight(outputs, inputs)))


def key_of(producer, width, *, is_output):
    """The key of a float32 matrix of that width; whether its own node saves it."""
    rank, output_number = 2, 0
    key = mix(producer)
    key = mix(key ^ (output_number << 40 | FLOAT32 << 16 | rank << 1 | is_output))
    return mix(key ^ width)


def expected_keys():
    first = linear(None, 64, 96)
    tanh = node("TanhBackward0", linear(node("GeluBackward0", first), 96, 72))
    second = node("TanhBackward0", linear(tanh, 72, 72, number=2))  # the second bias of 72
    sigmoid = node("SigmoidBackward0", linear(second, 72, 80))
    return {
        "gelu": key_of(first, WIDTHS["gelu"], is_output=False),
        "tanh": key_of(tanh, WIDTHS["tanh"], is_output=True),
        "second tanh": key_of(second, WIDTHS["tanh"], is_output=True),
        "sigmoid": key_of(sigmoid, WIDTHS["sigmoid"], is_output=True),
    }


def by_record(events):
    records = {}
    for kind, block, record, key, phase in events:
        if record and kind != "other":  # the room of a payload has its record, and no key
            records.setdefault(record, []).append((kind, block, key, phase))
    return records


@pytest.fixture
def recorded_steps(run_script, preload_library, torch_version):
    """The events of two steps; `preload`: whether Pleat was there before torch, or came by hand."""

    def record(preload):
        folder = preload_library.parent / "recording"
        bridge = folder / f"libpleat_bridge_torch{'.'.join(torch_version.split('.')[:2])}.so"
        if not bridge.exists():
            missing(f"{bridge} is not built")
        env = {"LD_PRELOAD": str(folder / preload_library.name)} if preload else {"LD_PRELOAD": ""} | variables_of(LOSSY)
        result = run_script(TRAINED, conf=LOSSY, env=env, fresh=True, args=[bridge]).active(encoded=8)
        return result.json["steps"]

    return record


@pytest.mark.parametrize("preload", [True, False])
def test_blocks_are_tagged_and_encoded_in_forward_and_restored_and_dropped_in_backward(recorded_steps, preload):
    for events in recorded_steps(preload):
        assert all(phase in (FORWARD, BACKWARD) for *_, phase in events), "somebody has said"
        phases = {}
        for record in by_record(events).values():
            for kind, _, _, phase in record:
                phases.setdefault(kind, set()).add(phase)
        assert phases["tag"] == phases["release"] == phases["encode"] == {FORWARD}
        assert phases["restore"] == phases["restored_free"] == phases["drop"] == {BACKWARD}


def test_all_events_of_a_saved_tensor_carry_the_key_of_the_node_that_saved_it(recorded_steps):
    expected = expected_keys()
    assert len(set(expected.values())) == len(expected), "two saves of different operators have different keys"
    steps = recorded_steps(preload=True)
    for events in steps:
        records = by_record(events)
        keys = {}
        for record in records.values():
            (key,) = {key for _, _, key, _ in record}
            assert key != 0 and key not in keys
            keys[key] = record
        assert set(expected.values()) <= keys.keys()
        freed = [block for kind, block, *_ in events if kind == "free"]
        for name, key in expected.items():
            kinds = [kind for kind, *_ in keys[key] if kind != "wait"]
            assert kinds == ["tag", "release", "encode", "restore", "restored_free", "drop"], name
            # The pool's events of the block that lost its bytes, and of the restored block.
            assert {block for kind, block, *_ in keys[key] if kind in ("tag", "restored_free")} <= set(freed), name
    first, second = (sorted({key for _, _, record, key, _ in events if record and key}) for events in steps)
    assert first == second, "a key is the same in each step"
