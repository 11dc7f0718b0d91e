"""Decisions in a trace: the planned coding without compression, the rule that allows noise, tensors left alone, and the
running module of torch.nn."""

import json
import subprocess
import textwrap

import pytest

from conftest import STOCK_ONLY, assert_identical
from traced import TRACING, events, summarised  # noqa: F401  fixtures

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="about Pleat's own files")


# ---- planned coding ---------------------------------------------------------------------------


def planned_peak(rows):
    """The highest live bytes if each plan were carried out: payloads in place of raw blocks."""
    plans, instead, live, highest = {}, {}, 0, 0
    for row in rows:
        live = row["live"] if row["live"] is not None else live
        record = row["record"]
        if row["kind"] == "plan":
            plans[record] = row
        elif row["kind"] == "hold" and record in plans and plans[record]["plan"] != "raw":
            instead[record] = plans[record]["payload_bytes"] - plans[record]["bytes"]
        elif row["kind"] in ("restore", "restored_free") and record in instead:
            instead[record] += plans[record]["bytes"] * (1 if row["kind"] == "restore" else -1)
        elif row["kind"] == "drop":
            instead.pop(record, None)
        highest = max(highest, live + sum(instead.values()))
    return highest


def test_plans_at_bits_off_foretell_a_run_that_codes(run_script, events, summarised, tmp_path):
    script = TRACING + textwrap.dedent("""
        class Deep(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = torch.nn.ModuleList(Net() for _ in range(4))
                self.norm = torch.nn.LayerNorm(160)
            def forward(self, x):
                for part in self.parts:
                    x = self.norm(x + F.dropout(part(x), 0.1))
                return x
        net = Deep()
        losses = [train(net, torch.optim.SGD(net.parameters(), 0.1), 1, rows=2048) for _ in range(3)]
        t.emit(losses=losses, records=t.bridge().stats()["records"], **{k.replace(".", "_"): v for k, v in net.state_dict().items()})
    """)
    runs = {bits: run_script(script, conf=f"bits:{bits},trace:{tmp_path / bits}.trace", args=[tmp_path]) for bits in ("off", "4")}
    untraced = run_script(script, conf="bits:off", args=[tmp_path])
    for run in [*runs.values(), untraced]:
        assert run.returncode == 0, run.stderr
    # No tensor is coded, and no value changes.
    off = runs["off"].json
    assert off["records"]["encoded"] == off["records"]["recomputed"] == 0 and off["records"]["held"] > 20
    assert_identical({k: v for k, v in off.items() if k != "records"}, {k: v for k, v in untraced.json.items() if k != "records"})
    rows = {bits: events(tmp_path / f"{bits}.trace") for bits in runs}
    plans = [row for row in rows["off"] if row["kind"] == "plan"]
    assert {"coded", "recomputed"} <= {row["plan"] for row in plans}
    assert len(plans) == sum(row["kind"] == "hold" for row in rows["off"]) == off["records"]["held"]
    assert not any(row["kind"] == "plan" for row in rows["4"])
    # The same decisions, and about the same payloads.
    decided = {bits: [(row["op"], row["bits"], row["noisy_elements"]) for row in rows[bits] if row["kind"] == "decided"] for bits in runs}
    assert sorted(decided["off"]) == sorted(decided["4"])
    foretold, found = planned_peak(rows["off"]), summarised(tmp_path / "4.trace")["host"]["peak_live"]["bytes"]
    at_off = summarised(tmp_path / "off.trace")["host"]["peak_live"]["bytes"]
    assert found < 0.6 * at_off and abs(foretold - found) <= 0.02 * found, (foretold, found, at_off)


def test_a_storage_that_waits_at_the_end_of_a_trace_is_held(run_script, tmp_path):
    run = run_script(
        TRACING
        + textwrap.dedent("""
        net = Net()
        start("a.trace")
        x = torch.randn(2048, 160)
        hidden = torch.tanh(net.inner(x))           # saved by tanh, and waits for a proof
        result = net.outer(hidden * 2)
        del hidden
        stop()
        result.square().mean().backward()
        net2 = Net()
        net2.load_state_dict(net.state_dict())
        t.bridge().disable()
        net2.outer(torch.tanh(net2.inner(x)) * 2).square().mean().backward()
        same = [bool(torch.equal(p.grad, q.grad)) for p, q in zip(net.parameters(), net2.parameters()) if p.grad is not None]
        t.emit(same=same, encoded=t.count("encoded"))
        """),
        conf="bits:off", args=[tmp_path],
    )
    assert run.returncode == 0, run.stderr
    assert run.json["encoded"] == 0 and run.json["same"] == [True] * 4


def test_the_trace_names_the_rule_for_noise_and_the_reasons_against_it(run_script, events, summarised, tmp_path):
    script = TRACING + textwrap.dedent("""
        import numpy
        start("a.trace")
        net = Net()
        train(net, torch.optim.SGD(net.parameters(), 0.1), 2)
        foreign = torch.from_numpy(numpy.ones((256, 160), numpy.float32))
        weight = torch.ones(256, 160, requires_grad=True)
        (weight * foreign).sum().backward()  # left alone
        stop()
        t.emit(loss=0.0)
    """)
    run = run_script(script, conf="bits:4", args=[tmp_path])
    assert run.returncode == 0, run.stderr
    rows = events(tmp_path / "a.trace")
    proved = [row for row in rows if row["kind"] == "proved"]
    noisy = {row["record"] for row in rows if row["kind"] == "decided" and row["noisy_elements"]}
    assert noisy and noisy <= {row["record"] for row in proved}
    assert {row["op"] for row in proved} & {"AddmmBackward0", "GeluBackward0", "TanhBackward0"}
    told = summarised(tmp_path / "a.trace")["host"]["compression"]["proved"]
    assert sum(row["saves"] for row in told) == len(proved) and {row["by"] for row in told} == {row["op"] for row in proved}
    left = [row for row in rows if row["kind"] == "left"]
    assert [(row["op"], row["bytes"], row["device"]) for row in left] == [("foreign_storage", 256 * 160 * 4, "host")]
    assert left[0]["line"] == next(n for n, text in enumerate(script.splitlines()) if "# left alone" in text)


def test_the_profile_and_the_trace_show_one_trail(run_script, events, summarised, command, tmp_path):
    """The widths of payloads are known when they are restored: an argument of GELU needs narrower steps than 3 bits have."""
    file, trace = tmp_path / "a.profile", tmp_path / "a.trace"
    script = TRACING + textwrap.dedent("""
        class Scores(Net):
            def forward(self, x):
                return super().forward(x).log_softmax(1).mul(self.outer(x).clamp(0, 1)) / torch.norm(self.middle(x))
        train(Scores(), None, 4)
        t.emit(requested=0)
    """)
    run = run_script(script, conf=f"bits:3,profile:{file},trace:{trace}", args=[tmp_path])
    assert run.returncode == 0, run.stderr
    units = [unit for unit in json.loads(file.read_text())["units"] if unit.get("trail")]
    in_profile = {" ".join(unit["trail"]) for unit in units}
    words = subprocess.run([command, "profile", "show", "--why", file], capture_output=True, text=True, check=True).stdout
    rows = events(trace)
    decided = {row["record"]: row["op"] for row in rows if row["kind"] == "decided"}
    in_trace = {decided[row["record"]] for row in rows if row["kind"] == "restore"}
    assert {"bits:3", "pole:0", "sides:0"} < in_profile <= in_trace, (in_profile, in_trace)
    assert "bits:3 wide_steps:4" in in_trace
    assert "asked 3 by the option `bits`\n" in words and "exact: a division, logarithm, comparison or loss follows\n" in words
    found = summarised(trace)["host"]["compression"]["exact"]
    assert found and all(row["trail"].endswith(f"{row['why']}:0") and row["trail"] in in_trace for row in found)


# ---- modules ---------------------------------------------------------------------------------------


def modules_of(rows):
    """The path of each MODULE event, in order; None: in no module."""
    return [row["op"] for row in rows if row["kind"] == "module"]


def test_modules(run_script, events, tmp_path):
    run = run_script(
        TRACING
        + textwrap.dedent("""
        import threading
        from torch.utils.checkpoint import checkpoint
        class Fails(torch.nn.Module):
            def forward(self, x):
                raise ValueError("no")
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.nets = torch.nn.Sequential(Net(), Net())
                self.fails = Fails()
            def forward(self, x):
                try:
                    self.fails(x)
                except ValueError:
                    pass
                return torch.nn.ReLU()(self.nets(x))
        torch.ones(1).add_(1)
        start("a.trace")
        torch.ones(1).add_(1)               # Python can be asked from here on
        model = Model()
        x = torch.randn(512, 160)
        model(x).sum().backward()
        thread = threading.Thread(target=model.nets, args=[x])
        thread.start(), thread.join()
        stop()
        hooks = torch.nn.modules.module
        left = len(hooks._global_forward_hooks) + len(hooks._global_forward_pre_hooks)
        model(x)
        start("b.trace")
        checkpoint(model.nets[0], x.requires_grad_(), use_reentrant=False).sum().backward()
        stop()
        t.emit(left=left)
        """),
        conf="bits:4,modules:1", args=[tmp_path],
    )
    assert run.returncode == 0, run.stderr
    assert run.json["left"] == 0
    found = modules_of(events(tmp_path / "a.trace"))
    net = [path for i in "01" for part in ("inner", "middle", "outer")
           for path in (f"Model.nets.{i}.{part}", f"Model.nets.{i}")]
    once = ["Model", "Model.fails", "Model", "Model.nets", "Model.nets.0", *net[:6], "Model.nets", "Model.nets.1", *net[6:],
            "Model.nets", "Model", "Model.ReLU", "Model", None]
    assert found[:len(once)] == once
    # In the thread its own module is the outermost.
    assert found[len(once)] == "Sequential" and "Sequential.1.middle" in found and found[-1] is None
    again = modules_of(events(tmp_path / "b.trace"))
    assert again.count("Net.inner") == 2  # forward, and again in backward


def test_modules_cost_a_compiled_function_no_event(run_script, events, tmp_path):
    run = run_script(
        TRACING
        + textwrap.dedent("""
        start("a.trace")
        net = Net()
        x = torch.randn(512, 160)
        expected = net(x).sum()
        compiled = torch.compile(net.forward, backend="eager", fullgraph=True)
        t.emit(same=bool(torch.equal(compiled(x).sum(), expected)))
        stop()
        """),
        conf="bits:4,modules:1", args=[tmp_path],
    )
    assert run.returncode == 0, run.stderr
    assert run.json["same"]
    assert "Net.inner" in modules_of(events(tmp_path / "a.trace"))


def test_an_interrupted_module_is_over(run_script, events, tmp_path):
    run = run_script(
        TRACING
        + textwrap.dedent("""
        import gc, weakref
        class Interrupted(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(160, 160)
            def forward(self, x):
                self.inner(x)
                raise KeyboardInterrupt
        start("a.trace")
        model, x = Interrupted(), torch.randn(512, 160)
        for _ in range(3):
            try:
                model(x)
            except KeyboardInterrupt:
                pass
        old = weakref.ref(model)
        del model
        gc.collect()
        Net()(x)
        stop()
        t.emit(alive=old() is not None)
        """),
        conf="bits:4,modules:1", args=[tmp_path],
    )
    assert run.returncode == 0, run.stderr
    assert not run.json["alive"]
    rows = [row for row in events(tmp_path / "a.trace") if row["kind"] == "module"]
    assert [row["op"] for row in rows[:3]] == ["Interrupted", "Interrupted.inner", "Interrupted"] and rows[3]["op"] == "Interrupted"
    assert max(row["bytes"] for row in rows) == 2
    assert [row["op"] for row in rows[-7:]] == ["Net.inner", "Net", "Net.middle", "Net", "Net.outer", "Net", None]


def test_modules_make_no_warning_of_the_scripts(run_script, tmp_path):
    run = run_script(
        TRACING
        + textwrap.dedent("""
        import warnings
        start("a.trace")
        net = Net()
        x = torch.randn(512, 160)
        net(x)
        with warnings.catch_warnings(record=True) as caught:
            torch.compile(net, backend="eager")(x)
        t.emit(warned=[str(one.message) for one in caught])
        stop()
        """),
        conf="bits:4,modules:1", args=[tmp_path],
    )
    assert run.returncode == 0, run.stderr
    assert run.json["warned"] == []
