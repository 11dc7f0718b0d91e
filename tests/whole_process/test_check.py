"""`pleat check`: one run of a script that reports how far noise changes each gradient, and trains like stock meanwhile."""

import json
import os
import signal
import subprocess
import sys

import numpy
import pytest

from conftest import STOCK_ONLY, assert_identical

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="about Pleat's own command")

planted = pytest.mark.not_as_shipped("plants a fault of an old rule, for the check to find")

# Noise in the sigmoid is one in a small difference: `rule:assumed` plants it.
PROGRAM = """
    import sys, torch, pleat_test_support as t
    kind = sys.argv[1]
    torch.manual_seed(0)
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(96, 160)
            self.outer = torch.nn.Linear(160, 48)
        def forward(self, x):
            return self.outer(torch.nn.functional.gelu(self.inner(x)))
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2
        @staticmethod
        def backward(ctx, grad):
            if kind == "fails" and torch._C._autograd._get_current_graph_task_keep_graph() and not calls:
                calls.append(0)
                raise RuntimeError("only in an extra pass\\nsecond line")
            return grad * 2
    calls = []
    net = Net()
    optimiser = torch.optim.SGD(net.parameters(), 1e-3)
    losses, first, draws = [], [], []
    for step in range(4):
        x = torch.randn(64, 96)
        u = 40 * net(x)
        if kind == "fails":
            u = Twice.apply(u)
        loss = -torch.log(1 - torch.sigmoid(u) + 1e-7).mean()
        if kind == "overflow" and step == 0:
            loss = loss * float("inf")
        optimiser.zero_grad()
        if kind == "create_graph":
            loss.backward(create_graph=bool(kind))
        elif kind == "inputs":
            loss.backward(inputs=list(net.parameters()))
        elif kind == "checkpoint":
            y = torch.utils.checkpoint.checkpoint(net.inner, x.requires_grad_(), use_reentrant=True)
            (loss + net.outer(y).square().mean()).backward()
        elif kind == "keeps_graph":
            loss.backward(retain_graph=True)
            loss.backward()
        elif kind == "no_leaves":
            pass
        else:
            loss.backward()
        if kind != "overflow" or step:
            optimiser.step()
        first = first or [p.grad.clone() for p in net.parameters()]
        losses.append(loss.item())
        draws.append(torch.rand(1).item())
    t.emit(losses=losses, draws=draws, first=first, weights=list(net.parameters()))
"""

CONF = "bits:4,min_bytes:0"
NAMES = ("inner.weight", "inner.bias", "outer.weight", "outer.bias")


@pytest.fixture
def checked(run_pair, tmp_path):
    """Runs the program with three passes looked at; returns both results, and the last line of the check."""

    def run(kind, more="", passes=3):
        file = tmp_path / kind
        conf = f"{CONF}{more},check:{passes},check_file:{file}"
        pair = run_pair(PROGRAM, conf=conf, args=(kind,))
        lines = file.read_text().splitlines() if file.exists() else []
        return pair, json.loads(lines[-1]) if lines else None

    return run


def verdicts(found):
    return {p["name"].split()[0]: p["verdict"] for p in found["parameters"]}


@planted
@pytest.mark.smoke
def test_a_planted_fault_is_found(checked):
    _, found = checked("plain", ",rule:assumed")
    assert found["passes"] == 3 and "surprise" in verdicts(found).values()
    assert verdicts(found).keys() == set(NAMES)


@pytest.mark.smoke
def test_the_rule_is_not_accused(checked):
    pair, found = checked("plain")
    assert set(verdicts(found).values()) == {"good"}
    pair.pleat.active(released=8, encoded=8)
    # Exact tensors are named, with their line.
    poles = [row for row in found["saved"] if row["why"] == "pole" and "SigmoidBackward" in row["place"]]
    assert len(poles) == 1 and poles[0]["storages"] == 3 and poles[0]["bytes"] == 3 * 64 * 48 * 4
    assert poles[0]["place"].split(",")[0].endswith(".py:" + line_of("torch.sigmoid(u)"))


def line_of(text):
    return str(PROGRAM.lstrip("\n").splitlines().index(next(row for row in PROGRAM.splitlines() if text in row)) + 1)


def test_training_equals_stock_bit_for_bit_while_passes_are_checked(checked):
    pair, found = checked("plain", passes=4)
    assert found["passes"] == 4
    assert_identical(pair.pleat.check().json, pair.stock.check().json)


@pytest.mark.not_as_shipped("the yardstick is held against a run with noise at operands only")
def test_errors_are_those_of_a_run_with_noise(checked, run_script):
    """The dither follows from the order of saves, which a check does not change: the error of its first pass is that of a
    run without it. The yardstick has no more noise than `rule:operands`."""
    pair, found = checked("plain", ",recompute:0", passes=1)
    wanted = {}
    for rule in ("", ",rule:operands"):
        noisy = run_script(PROGRAM, conf=f"{CONF},recompute:0{rule}", args=("plain",)).active().json["first"]
        wanted[rule] = [norm(gradient - exact) / norm(exact) for exact, gradient in zip(pair.stock.check().json["first"], noisy)]
        assert max(wanted[rule]) > 0.005
    rows = {p["name"].split()[0]: p for p in found["parameters"]}
    assert [rows[name]["error"] for name in NAMES] == pytest.approx(wanted[""], rel=1e-3)
    for name, most in zip(NAMES, wanted[",rule:operands"]):
        assert most / 4 <= rows[name]["yardstick"] <= most * 1.001


# Values that drown in the step of larger neighbours, before a reader that gives each of them its weight: small rows before
# rows are normalised, small heads of a group normalisation. `scale` 1: none are small.
DROWNED = """
    import sys, torch, pleat_test_support as t
    kind, scale, steps = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    torch.manual_seed(0)
    inner, query, outer = torch.nn.Linear(96, 96), torch.nn.Linear(96, 64, bias=False), torch.nn.Linear(64, 16)
    net = torch.nn.Sequential(inner, query, outer)
    if kind == "heads":
        with torch.no_grad():
            query.weight[:32] *= scale
    optimiser = torch.optim.SGD(net.parameters(), 1e-2)
    rows = torch.where(torch.arange(256) % 4 == 0, scale, 1.0)[:, None]
    grads = []
    for step in range(steps):
        h = torch.nn.functional.gelu(inner(torch.randn(256, 96)))
        if kind == "heads":
            q = torch.nn.functional.group_norm(query(h), 4)
        else:
            q = torch.nn.functional.normalize(query(h * rows), dim=-1)
        optimiser.zero_grad()
        (outer(q) - torch.randn(256, 16)).square().mean().backward()
        grads.append([p.grad.clone() for p in net.parameters()])
        optimiser.step()
    t.emit(grads=grads)
"""


def norm(gradient):
    return numpy.linalg.norm(gradient)


def drowned(run_script, file, kind, scale, rule="", steps=2):
    conf = f"{CONF}{rule},check:{steps},check_file:{file}"
    result = run_script(DROWNED, conf=conf, args=(kind, str(scale), str(steps))).check()
    found = json.loads(file.read_text().splitlines()[-1])
    assert found["passes"] == steps
    return result.json["grads"], {p["name"].split()[0]: p for p in found["parameters"]}


@planted
@pytest.mark.parametrize(("kind", "scale"), [("rows", 0.15), ("heads", 0.14)])
def test_noise_of_larger_neighbours_is_found_and_no_part_of_the_yardstick(run_script, tmp_path, kind, scale):
    _, even = drowned(run_script, tmp_path / "even", kind, 1, ",rule:no_lines")
    assert {row["verdict"] for row in even.values()} == {"good"}
    _, uneven = drowned(run_script, tmp_path / "uneven", kind, scale, ",rule:no_lines")
    weight = uneven["1.weight"]
    assert 0.25 < weight["error"] < 0.4 and weight["verdict"] == "surprise"
    assert weight["yardstick"] < 1.5 * even["1.weight"]["yardstick"]


def test_batches_differ_as_the_gradients_of_stock_do(run_pair, tmp_path):
    (first, second), found = drowned(lambda *a, **b: run_pair(*a, **b).pleat, tmp_path / "file", "heads", 1)
    for name, a, b in zip(("0.weight", "0.bias", "1.weight", "2.weight", "2.bias"), first, second):
        assert found[name]["batch"] == pytest.approx(norm(a - b) / numpy.sqrt((norm(a) ** 2 + norm(b) ** 2) / 2), rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("create_graph", "create_graph"),
        ("inputs", "gradients asked for by inputs= or autograd.grad"),
        ("checkpoint", "CheckpointFunctionBackward"),
        ("fails", "only in an extra pass"),
    ],
)
def test_an_impossible_check_is_reported_and_the_job_continues(checked, kind, why):
    pair, found = checked(kind)
    assert [row["why"] for row in found["refused"]][-1] == why
    assert found["passes"] == (3 if kind == "fails" else 0)
    assert pair.pleat.check().json["losses"][0] == pair.stock.check().json["losses"][0]


# One pass that leaves more behind than gradients of leaves, were it run more than once.
LEAVES_MORE = """
    import sys, torch, pleat_test_support as t
    kind = sys.argv[1]
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(96, 160), torch.nn.GELU(), torch.nn.Linear(160, 48))
    class Reversible(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            with torch.no_grad():
                return net[2](x)
        @staticmethod
        def backward(ctx, grad):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = net[2](x)
            y.backward(grad)
            return x.grad
    x = torch.randn(64, 96)
    hidden = net[1](net[0](x))
    runs = []
    def hook(grad):
        runs.append(0)
        if kind == "queues":
            torch.autograd.Variable._execution_engine.queue_callback(lambda: runs.append(1))
        elif kind == "interrupted" and len(runs) == 2:
            raise KeyboardInterrupt
    if kind == "retain_grad":
        hidden.retain_grad()
    elif kind != "reversible":
        hidden.register_hook(hook)
    y = Reversible.apply(hidden) if kind == "reversible" else net[2](hidden)
    try:
        y.square().mean().backward()
    except KeyboardInterrupt:
        runs.append("interrupted")
    t.emit(runs=runs, kept=hidden.grad if kind == "retain_grad" else None, grads=[p.grad for p in net.parameters() if p.grad is not None])
"""


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("retain_grad", None),
        ("reversible", "a backward pass within the pass accumulates gradients"),
        ("queues", "a function or a hook queues a callback for the end of the pass"),
    ],
)
def test_lasting_effects_of_a_pass_happen_once(run_pair, tmp_path, kind, why):
    file = tmp_path / kind
    pair = run_pair(LEAVES_MORE, conf=f"{CONF},check:1,check_file:{file}", args=(kind,))
    pleat, stock = pair.pleat.check().json, pair.stock.check().json
    found = json.loads(file.read_text().splitlines()[-1])
    assert [row["why"] for row in found["refused"]] == ([why] if why else [])
    assert found["passes"] == (0 if why else 1)
    assert_identical([pleat["kept"], pleat["grads"]], [stock["kept"], stock["grads"]])
    assert pleat["runs"].count(1) == stock["runs"].count(1) == (kind == "queues")


@pytest.mark.parametrize(
    ("kind", "why"),
    [("static_graph", "a function or a hook queues a callback for the end of the pass"), ("fully_shard", "parameters are sharded: FSDPLinear")],
)
def test_a_distributed_module_that_counts_passes_trains_as_in_stock(run_pair, tmp_path, kind, why):
    script = """
        import os, sys, tempfile, torch, pleat_test_support as t
        import torch.distributed as dist
        kind = sys.argv[1]
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
            torch.manual_seed(0)
            net = torch.nn.Linear(96, 48)
            if kind == "static_graph":
                module = torch.nn.parallel.DistributedDataParallel(net, static_graph=True)
            else:
                from torch.distributed.device_mesh import init_device_mesh
                from torch.distributed.fsdp import fully_shard
                module = fully_shard(net, mesh=init_device_mesh("cpu", (1,)))
            optimiser = torch.optim.SGD(module.parameters(), 1e-2)
            for step in range(2):
                optimiser.zero_grad()
                module(torch.randn(64, 96)).square().mean().backward()
                optimiser.step()
            weights = [p.to_local() if kind == "fully_shard" else p for p in module.parameters()]
            t.emit(weights=weights)
            dist.destroy_process_group()
    """
    file = tmp_path / kind
    pair = run_pair(script, conf=f"{CONF},check:2,check_file:{file}", args=(kind,))
    found = json.loads(file.read_text().splitlines()[-1])
    assert [row["why"] for row in found["refused"]] == [why]
    assert found["passes"] == (1 if kind == "static_graph" else 0)
    assert_identical(pair.pleat.check().json, pair.stock.check().json)


def test_an_interruption_in_an_extra_pass_ends_the_pass_of_the_script(run_script, tmp_path):
    conf = f"{CONF},check:1,check_file:{tmp_path / 'file'}"
    result = run_script(LEAVES_MORE, conf=conf, args=("interrupted",)).check()
    assert result.json["runs"] == [0, 0, "interrupted"] and result.json["grads"] == []


def test_each_module_has_a_row_of_its_own_despite_reused_addresses_and_failing_modules(run_script, tmp_path):
    script = """
        import torch, pleat_test_support as t
        class Refuses(torch.nn.Module):
            def named_parameters(self, *args, **kwargs):
                raise RuntimeError
        class Unfinished(torch.nn.Module):
            def __init__(self):
                pass
        others = Refuses(), Unfinished()
        for size in (32, 48, 32, 48):
            net = torch.nn.Sequential()
            net.add_module("a\\udc80 b", torch.nn.Linear(64, size))
            net(torch.randn(64, 64)).square().mean().backward()
            del net
        t.emit(done=1)
    """
    file = tmp_path / "file"
    run_script(script, conf=f"{CONF},check:4,check_file:{file}").check()
    found = json.loads(file.read_text().splitlines()[-1])
    rows = [(p["name"], p["passes"]) for p in found["parameters"]]
    expected = [(f"a? b.{name}", 1) for size in (32, 48, 32, 48) for name in (f"bias [{size}]", f"weight [{size}, 64]")]
    assert sorted(rows) == sorted(expected)


def test_a_kept_graph_is_checked_twice_and_an_overflow_is_no_gradient(checked):
    pair, found = checked("keeps_graph", passes=8)
    assert found["passes"] == 8 and set(verdicts(found).values()) == {"good"}
    assert_identical(pair.pleat.check().json, pair.stock.check().json)
    _, found = checked("overflow", passes=4)
    assert [p["passes"] for p in found["parameters"]] == [3] * 4


# --- the command ------------------------------------------------------------------------------


def pleat_check(runner, build_dir, *arguments, timeout=180, **variables):
    environment = runner.environment(conf=None, preload=False, extra=variables)
    environment["PLEAT_TEST_RESULTS"] = str(runner.folder)
    command = [build_dir / "bin" / "pleat", "check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout)


@planted
def test_the_exit_code_reports_the_result(runner, build_dir, test_python, preload_library, tmp_path):
    script = runner._path(PROGRAM)
    out = tmp_path / "found.json"
    options = ("--min-bytes", "0", "--json", out, "--stop", "--steps", "2")
    command = ("--", test_python, script, "plain")
    result = pleat_check(runner, build_dir, *options, *command, PLEAT_TEST_CONF="rule:assumed")
    assert result.returncode == 1, result.stderr
    assert "2 of 2 backward passes looked at" in result.stderr and "SURPRISE" in result.stderr
    found = json.loads(out.read_text())
    assert found["code"] == 1 and len(found["processes"]) == 1


@planted
def test_the_exit_code_reports_noise_of_larger_neighbours_and_one_batch_without_any(runner, build_dir, test_python, preload_library):
    script = runner._path(DROWNED)
    for kind, scale, steps, code in (("rows", 0.15, 3, 1), ("heads", 1, 1, 0)):
        command = ("--", test_python, script, kind, str(scale), str(steps))
        result = pleat_check(runner, build_dir, "--min-bytes", "0", *command, PLEAT_TEST_CONF="rule:no_lines")
        assert result.returncode == code, result.stderr
        row = next(line for line in result.stderr.splitlines() if line.lstrip().startswith("1.weight"))
        assert row.split()[-2:] == (["%", "SURPRISE"] if code else ["-", "good"]), "no pass before the one of one batch"


def test_a_program_that_does_not_train_or_fails_is_no_good_news(runner, build_dir, preload_library):
    result = pleat_check(runner, build_dir, sys.executable, "-c", "pass")
    assert result.returncode == 2 and "no backward pass was seen" in result.stderr
    result = pleat_check(runner, build_dir, "sh", "-c", "exit 7")
    assert result.returncode == 2 and "ended with exit code 7" in result.stderr
    result = pleat_check(runner, build_dir, "no-such-program-of-ours")
    assert result.returncode == 2 and "no-such-program-of-ours" in result.stderr
    for arguments in ((), ("--steps", "0", "true"), ("--steps", "many", "true")):
        result = pleat_check(runner, build_dir, *arguments)
        assert result.returncode == 2 and result.stderr.startswith("pleat: ")


def test_a_signal_reaches_the_program_and_no_file_is_left(runner, build_dir, preload_library, tmp_path):
    environment = runner.environment(conf=None, preload=False) | {"TMPDIR": str(tmp_path)}
    command = [build_dir / "bin" / "pleat", "check", "--", "sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout.readline() == "up\n"
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and "ended with exit code 5" in errors
    assert list(tmp_path.iterdir()) == []


def test_an_unprintable_table_and_a_moving_folder_harm_no_program(runner, build_dir, test_python, preload_library, tmp_path):
    program = "import os, torch; os.chdir('/'); w = torch.ones(8, requires_grad=True); w.square().sum().backward(); print('done')"
    environment = runner.environment(conf=None, preload=False) | {"TMPDIR": "."}
    command = [build_dir / "bin" / "pleat", "check", "--steps", "1", "--json", "found.json", "--", test_python, "-c", program]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, text=True, env=environment, cwd=tmp_path, timeout=120)
    assert result.returncode == 0 and result.stdout == "done\n"
    assert json.loads((tmp_path / "found.json").read_text())["processes"][0]["passes"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


# --- programs whose gradients were wrong before a proof was asked for -------------------------

FOUND = [
    "poles/sigmoid_noisy_or_log",
    "poles/sigmoid_median_log",
    "poles/sigmoid_one_hot_matmul_log",
    "poles/sigmoid_cumprod_log",
    "poles/division_by_activation",
    "poles/log_of_ten_activations",
    "poles/sigmoid_interpolate_nearest_log",
    "losses/jensen_shannon",
    "scientific/logdet_of_gram",
    "scientific/gp_matern",
]


@planted
@pytest.mark.parametrize("name", FOUND)
def test_a_failure_of_the_old_rule_is_found_and_passes_under_the_present_rule(run_script, repository, tmp_path, name):
    scenes = repository / "tests" / "scenes"
    said = {}
    for name_of_rule, rule in (("assumed", ",rule:assumed"), ("present", "")):
        conf = f"{CONF}{rule},check:3,check_file:{tmp_path / name_of_rule}"
        result = run_script(scenes / "as_script.py", conf=conf, args=(scenes / f"{name}.py",))
        assert result.returncode == 0, result.stderr
        found = json.loads((tmp_path / name_of_rule).read_text().splitlines()[-1])
        assert found["passes"] == 3
        said[name_of_rule] = {p["verdict"] for p in found["parameters"]}
    assert "surprise" in said["assumed"] and "surprise" not in said["present"]
