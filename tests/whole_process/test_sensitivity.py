"""`sensitivity:on` in scripts of all kinds: extra backward passes that the script cannot observe, and bits that follow from
them."""

import json
import math
import os
import re

import numpy
import pytest

from conftest import STOCK_ONLY, assert_identical

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="about Pleat's own passes")

PROGRAM = """
    import contextlib, os, sys, torch, pleat_test_support as t
    kind, steps = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2
        @staticmethod
        def backward(ctx, grad):
            if kind == "returns_saved":
                return ctx.saved_tensors[0]
            return grad * 2
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(96, 160)
            self.middle = torch.nn.Linear(160, 160)
            self.outer = torch.nn.Linear(160, 96, bias=kind != "tied")
            if kind == "tied":
                self.outer.weight = torch.nn.Parameter(self.inner.weight.detach().t().clone())
                self.again = self.middle
        def forward(self, x):
            h = torch.nn.functional.gelu(self.inner(x))
            h = torch.relu(self.middle(h))
            if kind == "tied":
                h = torch.relu(self.again(h))
            if kind in ("custom", "returns_saved"):
                h = Twice.apply(h)
            if kind == "dropout":
                h = torch.nn.functional.dropout(h, 0.3)
            if kind == "shared":
                return torch.nn.functional.linear(torch.tanh(h), self.inner.weight.t())
            return self.outer(torch.tanh(h))
    net, other, norm = Net(), Net(), torch.nn.BatchNorm1d(160)
    if kind == "frozen":
        net.inner.requires_grad_(False)
    class_of_optimiser = torch.optim.AdamW if kind == "adam" else torch.optim.SGD
    optimiser = class_of_optimiser([*net.parameters(), *other.parameters()], 1e-2)
    data = torch.Generator().manual_seed(1)
    losses, draws, grads = [], [], []
    def loss_of(model, batch=128):
        x = torch.randn(batch, 96, generator=data)
        y = x.roll(1, 1)
        context = torch.autocast("cpu", torch.bfloat16) if kind == "autocast" else contextlib.nullcontext()
        with context:
            z = model(x)
        if kind == "half":
            z, y = z[: batch // 2], y[: batch // 2]
        loss = (z.float() - y).square().mean()
        if kind == "not_finite":
            loss = loss * (float("inf") if step == 9 else 1.0)
        return loss
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=4) if kind == "scaler" else None
    for step in range(steps):
        optimiser.zero_grad()
        if kind == "accumulate":
            for _ in range(4):
                (loss_of(net, 32) / 4).backward()
            loss = torch.zeros(())
        elif kind == "twice":
            loss = loss_of(net)
            loss.backward(retain_graph=True)
            loss.backward()
        elif kind == "two_models":
            loss = loss_of(net if step % 2 else other)
            loss.backward()
        elif kind == "evaluates":
            with torch.no_grad():
                net.eval()(torch.ones(4, 96))
            kept = net.eval()(torch.ones(128, 96))  # nobody runs its backward
            net.train()
            loss = loss_of(net)
            loss.backward()
        elif kind == "raises":
            try:
                loss_of(net)
                h = net.inner(torch.ones(128, 96))
                torch.nn.functional.gelu(h) @ torch.ones(3, 3)
            except RuntimeError:
                pass
            loss = loss_of(net)
            loss.backward()
        elif kind == "checkpoint":
            x = torch.randn(128, 96, generator=data)
            h = torch.utils.checkpoint.checkpoint(lambda x: norm(net.inner(x)), x, use_reentrant=False)
            loss = net.outer(torch.relu(net.middle(h))).square().mean()
            loss.backward()
        elif kind == "own_hooks":  # each saved tensor is given once
            stored = {}
            def pack(tensor):
                stored[len(stored)] = tensor
                return len(stored) - 1
            with torch.autograd.graph.saved_tensors_hooks(pack, stored.pop):
                h = net.inner(torch.randn(128, 96, generator=data))
            loss = net.outer(torch.relu(net.middle(h))).square().mean()
            loss.backward()
        elif kind == "hook":
            loss = loss_of(net)
            z = loss * 1.0
            z.register_hook(lambda g: g * 1)
            z.backward()
        elif kind == "retains":
            loss = loss_of(net)
            z = loss * 1.0
            z.retain_grad()
            z.backward()
        elif kind == "graph_of_gradients":
            loss = loss_of(net)
            torch.autograd.backward(loss, create_graph=bool(kind))
        elif scaler:
            loss = loss_of(net)
            scaler.scale(loss).backward()
        else:
            loss = loss_of(net)
            loss.backward()
        if kind == "disables" and step == 9 and t.bridge().loaded:
            t.bridge().disable()
        if kind == "forks" and step == 9:
            if (child := os.fork()) == 0:
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        grads = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
        if scaler:
            scaler.step(optimiser)
            scaler.update()
        elif kind != "not_finite" or step != 9:
            optimiser.step()
        losses.append(loss.item())
        draws.append(torch.rand(1).item())
    t.emit(losses=losses, draws=draws, grads=[g for g in grads if g is not None],
           weights=[p.detach() for p in net.parameters()], buffers=list(norm.buffers()))
"""

LOSSLESS = "bits:lossless,min_bytes:0,sensitivity:on,refresh:10"


@pytest.fixture
def trained(run_pair):
    def run(kind, conf=LOSSLESS, steps=32):
        pair = run_pair(PROGRAM, conf=conf, args=(kind, str(steps)))
        return pair.stock.check(), pair.pleat.check()

    return run


# Kind, minimum of extra passes, and the text of the refusal.
MEASURED = ["plain", "tied", "shared", "frozen", "half", "accumulate", "evaluates", "raises", "autocast", "dropout", "two_models",
            "disables", "forks", "scaler", "not_finite"]  # fmt: skip
REFUSED = {
    "custom": "probe_custom:1",
    "checkpoint": "checkpoint",
    "own_hooks": "own hooks on saved tensors",
    "hook": "hook",
    "retains": "retain_grad",
}


@pytest.mark.parametrize("kind", MEASURED)
def test_extra_passes_are_invisible_to_the_script(trained, kind):
    """Two bursts in 32 steps, without loss: losses, weights, gradients and random numbers are stock's bit for bit."""
    stock, pleat = trained(kind)
    assert_identical(pleat.json, stock.json)
    found = pleat.stats["sensitivity"]
    assert found["refusals"] == (["gradients are not finite"] if kind == "not_finite" else [])
    bursts = 1 if kind in ("disables", "forks") else 2
    assert found["bursts"] >= bursts and found["measured"] >= (1 if kind == "frozen" else 3)
    assert found["passes"] == 16 * found["bursts"]


@pytest.mark.parametrize("kind", REFUSED)
def test_a_graph_that_cannot_be_run_again_is_left_alone(trained, kind):
    stock, pleat = trained(kind, steps=14)
    assert_identical(pleat.json, stock.json)
    found = pleat.stats["sensitivity"]
    assert found["bursts"] == 0 and len(found["refusals"]) == 1 and REFUSED[kind] in found["refusals"][0]
    assert pleat.stderr.count("sensitivity is not measured") == 1


def test_functions_in_python_run_in_extra_passes_where_the_user_allows_it(trained):
    for kind in ("custom", "returns_saved"):
        stock, pleat = trained(kind, conf=LOSSLESS + ",probe_custom:1", steps=14)
        assert_identical(pleat.json, stock.json)
        assert pleat.stats["sensitivity"]["refusals"] == [] and pleat.stats["sensitivity"]["bursts"] == 1


def test_both_backward_passes_over_one_graph_can_be_checked(trained):
    stock, pleat = trained("twice")
    assert_identical(pleat.json, stock.json)
    assert pleat.stats["sensitivity"]["bursts"] >= 2


def test_a_pass_that_makes_a_graph_is_no_step(trained):
    stock, pleat = trained("graph_of_gradients", steps=14)
    assert_identical(pleat.json, stock.json)
    assert pleat.stats["sensitivity"]["bursts"] == 0


# ---- the profile --------------------------------------------------------------------------------


def units(profile):
    return {unit["key"]: unit for unit in profile["units"]}


@pytest.fixture
def profiled(run_script, tmp_path):
    """Runs the program with a profile; returns the profile, and the run's result."""

    def run(kind="plain", conf="bits:4,sensitivity:on", steps=14, file=None, fresh=False):
        file = file or tmp_path / f"{kind}.pleat"
        result = run_script(PROGRAM, conf=f"{conf},min_bytes:0,profile:{file}", args=(kind, str(steps)), fresh=fresh).check()
        return json.loads(file.read_text()), result

    return run


WITH_THE_SAME_LAYERS = ["evaluates", "raises", "dropout", "half", "accumulate", "forks"]


def test_a_key_is_the_same_in_every_process_and_independent_of_other_work(profiled):
    plain, _ = profiled()
    again, _ = profiled()
    assert units(plain).keys() == units(again).keys()
    of_layers = {key for key, unit in units(plain).items() if unit.get("producer") in ("AddmmBackward0", "ReluBackward0")}
    assert len(of_layers) == 2
    for kind in WITH_THE_SAME_LAYERS:
        assert of_layers <= units(profiled(kind)[0]).keys(), kind


def test_two_models_have_keys_of_their_own(profiled):
    plain, _ = profiled()
    both, _ = profiled("two_models", steps=24)
    lossy = [u for u in both["units"] if u.get("costs")]
    assert units(plain).keys() < units(both).keys() and len(lossy) == 2 * len([u for u in plain["units"] if u.get("costs")])
    assert all(len(u["measurements"]) == 1 for u in lossy)


def test_units_have_names_without_any_extra_pass(profiled):
    profile, result = profiled(conf="bits:4", steps=4)
    assert result.stats["sensitivity"]["passes"] == 0
    rows = {unit["producer"]: unit for unit in profile["units"] if "producer" in unit}
    gelu = rows["AddmmBackward0"]  # the argument, from whose payload the result comes back too
    assert "GeluBackward0" in gelu["reader"] and len(gelu["results"]) == 1 and gelu["shape"] == [128, 160]
    assert gelu["width"] == 4 and gelu["bytes"] == 2 * 128 * 160 * 4 and not gelu.get("measurements")
    costs = {width: (size, error) for width, size, error in rows["TanhBackward0"]["costs"]}
    assert costs[4][1] == 1 and costs[8][1] < costs[4][1] < costs[2][1] and costs[0] == (128 * 160 * 4, 0)
    assert os.stat(profile_path(result)).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "kind, conf, objective", [("plain", "", "gradient"), ("adam", "", "update"), ("adam", ",objective:gradient", "gradient")]
)
def test_the_optimizer_decides_which_noise_counts(profiled, kind, conf, objective):
    """Both noises are measured, so that the file is good for either."""
    profile, result = profiled(kind, conf=f"bits:3,sensitivity:on,verbose:1{conf}", fresh=True)
    assert profile["objective"] == result.stats["sensitivity"]["objective"] == objective
    measured = [unit["measurements"][0] for unit in profile["units"] if unit.get("measurements")]
    assert measured and all(len(one) == 3 and one[2] >= 0 for one in measured)
    assert any(abs(one[2] / one[1] - 1) > 0.05 for one in measured if one[1] > 0), "else both were the same number"
    assert f"% of the {objective} (uniform" in result.stderr


by_single_passes = pytest.mark.not_as_shipped("about the measurement by one pass for each tensor, or held against it")


@by_single_passes
def test_verify_holds_each_prediction_against_its_noise(profiled):
    """One pass for each unit, after the measurement: its predicted noise against its actual noise."""
    _, result = profiled(conf="bits:3,sensitivity:exact,verify:1")
    lines = result.stderr.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("pleat: verify: noise of each saved tensor"))
    assert "of the gradient's norm" in lines[start]
    rows = [re.fullmatch(r" +(\S+) +(\S+) +(\S+)  (.*)", line) for line in lines[start + 2 :]]
    found = [(row[1], float(row[2]), float(row[3]), row[4]) for row in rows if row]
    assert len(found) == result.stats["sensitivity"]["measured"] + 1
    *alone, (bits, predicted, measured, at_once) = found
    assert (bits, at_once) == ("all", "at once")
    assert [row[2] for row in alone] == sorted((row[2] for row in alone), reverse=True)
    assert 0.5 < measured / predicted < 2 and alone[0][0] in "1 2 3 4 6 8".split()
    for _, of_unit, seen, name in alone:
        if seen > 0.1 * measured:
            assert 0.5 < seen / of_unit < 2, name
    assert math.hypot(*(row[2] for row in alone)) == pytest.approx(measured, rel=0.5), "noises add up"


def profile_path(result):
    return next(item.partition(":")[2] for item in result.conf.split(",") if item.startswith("profile:"))


def test_a_profile_is_used_from_the_first_step_on(profiled, tmp_path):
    file = tmp_path / "kept.pleat"
    first, _ = profiled(conf="bits:3,sensitivity:on", file=file)
    _, used = profiled(conf="bits:3", steps=1, file=file)
    widths = {u["key"]: u["width"] for u in first["units"] if u.get("costs")}
    assert len(set(widths.values())) > 1  # else no difference would show
    found = used.stats["sensitivity"]
    assert found["measured"] == len(widths) and found["bytes"] <= found["uniform_bytes"]
    assert found["noise"] <= found["uniform_noise"]


def test_a_profile_of_the_version_before_is_used_and_gets_trails(profiled, tmp_path):
    file = tmp_path / "kept.pleat"
    first, _ = profiled(conf="bits:3,sensitivity:on", file=file)
    chosen = {key: unit for key, unit in units(first).items() if unit.get("costs")}
    trails = {key: unit["trail"] for key, unit in chosen.items()}
    assert {key: trail[0] for key, trail in trails.items()} == {
        key: f"profile:{unit['width']}" for key, unit in chosen.items()
    }
    for unit in first["units"]:
        unit.pop("trail", None)
    file.write_text(json.dumps(first | {"pleat_profile": 1}))
    again, used = profiled(conf="bits:3", steps=4, file=file)
    assert used.stats["sensitivity"]["measured"] == len(chosen) and used.stderr == ""
    assert again["pleat_profile"] == 2
    assert {key: units(again)[key]["trail"] for key in trails} == trails, "of what was asked, and of what was stored"


def test_measurements_of_several_bursts_are_kept_in_order(profiled, tmp_path):
    file = tmp_path / "kept.pleat"
    profiled(conf="bits:4,sensitivity:on,refresh:5", steps=22, file=file)
    profile, _ = profiled(conf="bits:4,sensitivity:on,refresh:5", steps=12, file=file)
    for unit in profile["units"]:
        if unit.get("costs"):
            steps = [step for step, *_ in unit["measurements"]]
            assert steps == sorted(set(steps)) and len(steps) >= 3
            assert all(n >= 0 and math.isfinite(n) for _, *noise in unit["measurements"] for n in noise)


@by_single_passes
@pytest.mark.parametrize("how, each", [("gact", 2), ("gact_code", 3)])
def test_measured_as_gact_does(profiled, tmp_path, how, each):
    """Two or three passes for each tensor, all of them noisy, find about the same as one pass with one noisy tensor."""
    reference, _ = profiled(conf="bits:4,sensitivity:exact", steps=10, file=tmp_path / "exact")
    profile, result = profiled(conf=f"bits:4,sensitivity:{how}", steps=12, file=tmp_path / how)
    measured = {key: unit for key, unit in units(profile).items() if unit.get("measurements")}
    found = result.stats["sensitivity"]
    assert found["bursts"] == 1 and found["passes"] == 1 + each * len(measured), "and no check"
    exact = {key: unit["measurements"][0][1] for key, unit in units(reference).items() if unit.get("measurements")}
    matter = [key for key, noise in exact.items() if noise > 0.05 * max(exact.values())]
    assert measured.keys() == exact.keys() and matter
    # At 1 bit, the width of the measurement, noise does not follow from the noise at 4 bits by the shape.
    most = 3 if how == "gact" else 30
    for key in matter:
        assert 1 / most < measured[key]["measurements"][0][1] / exact[key] < most, (measured[key], exact[key])
    assert {unit["width"] for unit in measured.values()} <= {0, 1, 2, 4, 8}


BAD_FILES = {
    "directory": lambda path: path.mkdir(),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: (path.touch(), os.truncate(path, 1 << 30)),
    "foreign": lambda path: path.write_text('{"a": [1, 2, 3]}\n'),
    "version": lambda path: path.write_text('{"pleat_profile": 99, "units": []}\n'),
    "truncated": lambda path: path.write_text('{"pleat_profile": 1, "steps": 3, "units": [\n{"key": "0x1'),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "unwritable": lambda path: path.symlink_to("/proc/no/such/place"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_file_that_is_no_profile_is_one_line_and_stays_as_it_is(run_script, tmp_path, kind):
    path = tmp_path / "a file"
    BAD_FILES[kind](path)
    before = path.lstat()
    conf = f"bits:4,min_bytes:0,sensitivity:on,profile:{path}"
    result = run_script(PROGRAM, conf=conf, args=("plain", "12")).check()
    lines = [line for line in result.stderr.splitlines() if line.startswith("pleat:")]
    assert len(lines) == 1 and "a file" in lines[0], result.stderr
    after = path.lstat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert result.stats["sensitivity"]["bursts"] == 1  # the measurement is used nevertheless


def test_a_profile_of_another_model_is_reported_in_one_line_and_kept(profiled, run_script, tmp_path):
    file = tmp_path / "other.pleat"
    profiled(file=file)
    text = re.sub(r"0x([0-9a-f]+)", lambda key: f"0x{int(key[1], 16) ^ 1:016x}", file.read_text())
    file.write_text(text)  # the same, of a model whose weights have other shapes
    of_other = json.loads(text)
    conf = f"bits:4,min_bytes:0,profile:{file}"
    result = run_script(PROGRAM, conf=conf, args=("plain", "4")).check()
    lines = [line for line in result.stderr.splitlines() if line.startswith("pleat:")]
    assert len(lines) == 1 and "other.pleat: seems to be of another model: it knows 0 of " in lines[0], result.stderr
    now = units(json.loads(file.read_text()))
    for key, unit in units(of_other).items():
        assert now[key].get("measurements") == unit.get("measurements")
    again = run_script(PROGRAM, conf=conf, args=("plain", "4")).check()
    assert again.stderr == "", "the file knows both now"
    with_costs = [unit for unit in now.values() if unit.get("costs")]
    assert again.stats["sensitivity"]["units"] == len(with_costs) // 2, "the other's share no bytes with this one's"


# ---- later findings ------------------------------------------------------------------------

SHIFTS = """
    import sys, torch, pleat_test_support as t
    torch.manual_seed(0)
    left = torch.nn.Sequential(torch.nn.Linear(64, 160), torch.nn.Tanh(), torch.nn.Linear(160, 64))
    right = torch.nn.Sequential(torch.nn.Linear(64, 160), torch.nn.Tanh(), torch.nn.Linear(160, 64))
    parameters = [*left.parameters(), *right.parameters()]
    optimiser = torch.optim.SGD(parameters, 1e-4)
    shares = torch.tensor([1.0, 1e-3])
    for step in range(45):
        if step == int(sys.argv[1]):
            shares.copy_(shares.flip(0))
        optimiser.zero_grad()
        x = torch.randn(128, 64)
        loss = (shares[0] * left(x) + shares[1] * right(x) - x.roll(1, 1)).square().mean()
        overflows = str(step + 1) in sys.argv[2:]
        (loss * float("inf" if overflows else 1)).backward()
        if not overflows:
            optimiser.step()
    t.emit(final=[p.detach() for p in parameters])
"""


@pytest.mark.parametrize("shift, overflows, measured", [(99, (), [10]), (25, (), [10, 41]), (25, (11, 40, 42), [10, 43])])
def test_a_measurement_that_holds_no_longer_is_made_again(run_script, tmp_path, shift, overflows, measured):
    """Step 40 checks; the measurement in step 10 was the first, and the next one by the calendar is step 1000. A step whose
    gradients overflow postpones a check or a measurement to the next step."""
    bursts = len(measured)
    file = tmp_path / "profile"
    conf = f"bits:3,min_bytes:0,sensitivity:on,profile:{file}"
    result = run_script(SHIFTS, conf=conf, args=(str(shift), *map(str, overflows))).check()
    found = result.stats["sensitivity"]
    assert found["bursts"] == bursts and found["passes"] >= 16 * bursts + 3, result.stderr
    tanh = [u for u in json.loads(file.read_text())["units"] if u.get("producer") == "TanhBackward0" and u.get("costs")]
    assert [step for step, *_ in tanh[0]["measurements"]] == measured
    widths = sorted(u["width"] for u in tanh)
    assert len(tanh) == 2 and widths[0] < widths[1]
    loud = max(tanh, key=lambda unit: unit["measurements"][-1][1])
    assert loud["width"] == widths[1], "the newest measurement counts"


# ---- several processes, compiled parts ----------------------------------------------------------

RANKS = """
    import torch, torch.distributed as dist, pleat_test_support as t
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(96, 160), torch.nn.GELU(), torch.nn.Linear(160, 160), torch.nn.Tanh(), torch.nn.Linear(160, 96))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimiser = torch.optim.SGD(model.parameters(), 1e-2)
    data = torch.Generator().manual_seed(rank)
    with torch.distributed.algorithms.join.Join([model]):
        for step in range(13 + 3 * rank):  # the first rank has no batches left
            optimiser.zero_grad()
            x = torch.randn(128, 96, generator=data)
            (model(x) - x.roll(1, 1)).square().mean().backward()
            optimiser.step()
    t.emit(rank=rank, final=[p.detach() for p in net.parameters()])
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.rotating(set="long processes")
def test_each_rank_measures_for_itself(run_pair, tmp_path):
    """Pleat calls no collective: ranks with unequal numbers of batches end as in stock, and each has a file."""
    from test_distributed import TORCHRUN, by_rank

    pair = run_pair(RANKS, conf=f"{LOSSLESS},profile:{tmp_path}/rank-%r.pleat", launcher=TORCHRUN, timeout=240)
    stock, pleat = by_rank(pair.stock), by_rank(pair.pleat)
    for rank, (mine, theirs) in enumerate(zip(pleat, stock)):
        assert_identical(mine["final"], theirs["final"])
        found = mine["pleat_stats"]["sensitivity"]
        assert found["bursts"] == 1 and found["refusals"] == [], found
        assert len(units(json.loads((tmp_path / f"rank-{rank}.pleat").read_text()))) >= 3


@pytest.mark.slow
@pytest.mark.rotating(set="long processes")
def test_a_compiled_part_is_run_in_extra_passes_too(run_pair):
    from test_compile import COMPILED

    script = COMPILED.format(backend="aot_eager").replace("range(5)", "range(13)")
    pair = run_pair(script, conf=LOSSLESS, timeout=400)
    assert_identical(pair.pleat.check().json, pair.stock.check().json)
    found = pair.pleat.stats["sensitivity"]
    assert found["bursts"] + len(found["refusals"]) == 1


# ---- a budget -----------------------------------------------------------------------------------

DEEP = """
    import sys, torch, pleat_test_support as t
    torch.manual_seed(0)
    layers = []
    for _ in range(12):
        layers += [torch.nn.Linear(256, 256), torch.nn.Tanh()]
    net = torch.nn.Sequential(*layers)
    optimiser = torch.optim.SGD(net.parameters(), 1e-2)
    data = torch.Generator().manual_seed(1)
    peaks = []
    for step in range(int(sys.argv[1])):
        t.bridge().library.pleat_reset_peaks()
        x = torch.randn(3072, 256, generator=data)
        optimiser.zero_grad()
        (net(x) - x).square().mean().backward()
        optimiser.step()
        del x
        peaks.append(max(t.stats()["bytes"][kind]["peak"] for kind in ("requested", "reserved")))
    t.emit(peaks=peaks, final=[p.detach() for p in net.parameters()])
"""
MIB = 1 << 20


def test_bits_follow_from_a_budget(run_script, tmp_path):
    def peaks(conf, steps):
        result = run_script(DEEP, conf=f"min_bytes:0,{conf}", args=(str(steps),)).check()
        return result.json["peaks"], result

    high, low = (max(peaks(f"bits:{bits}", 6)[0][2:]) for bits in (8, 2))
    assert high - low > 4 * MIB
    for part in (0.3, 0.8):
        budget = int(low + part * (high - low)) // MIB * MIB
        file = tmp_path / f"{part}.pleat"
        found, result = peaks(f"sensitivity:on,refresh:0,profile:{file},budget:{budget}", 22)
        assert all(0.92 * budget <= peak <= budget for peak in found[18:]), (budget, found)
        assert result.stderr.count("pleat: budget") == 2  # one without a measurement; one with the choice
        # With the profile it holds from the first step on.
        found, result = peaks(f"profile:{file},budget:{budget}", 10)
        assert all(peak <= budget for peak in found), (budget, found)
        assert all(peak >= 0.92 * budget for peak in found[7:]), (budget, found)
        assert result.stats["sensitivity"]["bits"] < 8


def test_an_unreachable_budget_is_one_line_and_changes_nothing(run_script):
    """Smaller widths would be noise for nothing: the training is that without a budget. What the line names is met."""
    conf = "min_bytes:0,sensitivity:on,refresh:0"
    without, unreachable = (run_script(DEEP, conf=conf + budget, args=("15",)).check() for budget in ("", ",budget:1MiB"))
    assert_identical(unreachable.json["final"], without.json["final"])
    _, line = [line for line in unreachable.stderr.splitlines() if "budget" in line]
    met = re.fullmatch(
        r"pleat: budget 1MiB cannot be met: at 4 bits the peak is (\d+) MB, and bits stay as they are; "
        r"budget:(\d+MiB) would fit, with noise up to (\d\S*) % of the gradient \(.*\)",
        line,
    )
    assert met and abs(int(met[1]) * 1e6 - without.json["peaks"][-1]) < 1e6 and float(met[3]) <= 30
    second = run_script(DEEP, conf=f"{conf},budget:{met[2]}", args=("22",)).check()
    assert second.json["peaks"][-1] <= int(met[2][:-3]) * MIB and "cannot be met" not in second.stderr
    assert re.search(rf"budget {met[2]}: at \S+ bits the peak is \d+ MB, and noise is \S+ % of the gradient", second.stderr)
    assert second.stats["sensitivity"]["checked"] <= 0.3**2


@pytest.mark.parametrize("budget", ["0", "-1", "lots", "1.5GiB"])
def test_a_budget_that_is_no_size_is_one_line(run_script, budget):
    result = run_script(DEEP, conf=f"budget:{budget}", args=("1",)).check()
    assert result.stderr.count("\n") == 1 and f"budget:{budget}" in result.stderr


@by_single_passes
def test_restored_bytes_are_disturbed_like_saved_ones(profiled, tmp_path):
    """Values that were rounded to a few levels too: a codec of the same width would give them back as they are."""
    of_values, _ = profiled("tied", conf="bits:lossless,sensitivity:exact", steps=10, file=tmp_path / "a")
    of_payloads, _ = profiled("tied", conf="bits:4,sensitivity:exact", steps=10, file=tmp_path / "b")
    known = units(of_values)
    ratios = {
        unit["producer"]: unit["measurements"][0][1] / known[unit["key"]]["measurements"][0][1]
        for unit in of_payloads["units"]
        if unit.get("measurements") and known.get(unit["key"], {}).get("measurements") and not unit.get("results")
    }
    assert "ReluBackward0" in ratios and all(1 / 2 < ratio < 2 for ratio in ratios.values()), ratios
