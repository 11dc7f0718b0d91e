"""Traces of code with odd names, of very many places, and of programs that a profiler or a compiler looks into as well."""

import re
import textwrap

import pytest

from conftest import STOCK_ONLY
from traced import TRACING, blocks, events, made, summarised  # noqa: F401  fixtures

pytestmark = [
    pytest.mark.skipif(STOCK_ONLY, reason="about Pleat's own files"),
    pytest.mark.rotating(set="edges of traces", share=3),
]


# ---- places in code --------------------------------------------------------------------------------


def test_names_that_are_not_as_others(run_script, summarised, events, tmp_path):
    """Modules that Python has frozen, names in other scripts, and texts that are no UTF-8."""
    (tmp_path / "mödul.py").write_text("import torch\nkept = torch.ones(1100 << 8)\n")
    run = run_script(
        TRACING
        + textwrap.dedent('''
        import importlib
        sys.path.insert(0, folder)
        start("names.trace")
        kept = [importlib.import_module("m\\u00f6dul")]
        space = {"torch": torch, "kept": kept}
        exec(compile("""class Gr\\u00f6\\u00dfe:
            def \\u6e2c\\u5b9a(self):
                def \\u03b1\\u03b2(n):
                    kept.append(torch.ones(1200 << 8))
                \\u03b1\\u03b2(1)
        Gr\\u00f6\\u00dfe().\\u6e2c\\u5b9a()
        """.replace("\\\\n        ", "\\\\n"), "\\u043a\\u043e\\u0434.py", "exec"), space)
        def plain():
            kept.append(torch.ones(1300 << 8))
        qualified = {"co_qualname": "\\udcff"} if hasattr(plain.__code__, "co_qualname") else {}
        plain.__code__ = plain.__code__.replace(co_name="bad\\udce9", co_filename="caf\\udce9.py", **qualified)
        plain()
        def nowhere():
            kept.append(torch.ones(1400 << 8))
        nowhere.__code__ = nowhere.__code__.replace(co_name="", co_filename="", **dict.fromkeys(qualified, ""))
        nowhere()
        assert sys.exc_info() == (None, None, None)
        stop()
        t.emit(done=1)
        '''),
        args=[tmp_path],
        conf="bits:off",
    ).check()
    assert run.stderr == ""
    rows = events(tmp_path / "names.trace")
    (module,), (measured,), (bad,), (nowhere,) = (made(rows, kib) for kib in (1100, 1200, 1300, 1400))
    assert module["file"].endswith("/mödul.py") and module["line"] == 2
    assert any(re.fullmatch(r"<frozen importlib\._bootstrap>:\d+ .*", frame) for frame in module["stack"])
    assert measured["file"] == "код.py" and measured["line"] == 4
    inner = measured["stack"][0]
    assert inner in ("код.py:4 Größe.測定.<locals>.αβ", "код.py:4 αβ")  # before Python 3.11
    assert bad["stack"][0].startswith("caf\\udce9.py:") and bad["stack"][0].endswith((" \\udcff", " bad\\udce9"))
    assert nowhere["stack"][0].startswith("?:") and nowhere["line"] > 0
    text = "\n".join(row["line"] or "" for row in summarised(tmp_path / "names.trace", "--at", "end")["host"]["by_line"])
    assert "Größe.測定" in text or "αβ" in text


def test_a_hundred_thousand_stacks_of_python(run_script, summarised, tmp_path):
    run = run_script(
        TRACING
        + textwrap.dedent("""
        keep = torch.empty
        def down(depth, path):
            if depth == 0:
                keep(1 << 15)
            elif path & 1:
                down(depth - 1, path >> 1)
            else:
                down(depth - 1, path >> 1)
        start("stacks.trace")
        for path in range(100_000):
            down(17, path)
        stop()
        t.emit(done=1)
        """),
        args=[tmp_path],
        conf="bits:off",
    ).check()
    assert run.stderr == ""
    summary = summarised(tmp_path / "stacks.trace")
    stacks = 4  # the kind of such a block
    assert sum(count for kind, count, _ in blocks(tmp_path / "stacks.trace") if kind == stacks) > 100_000
    assert summary["events"] + summary["lost_events"] >= 200_000 and not summary["incomplete"]


# ---- next to other tools ---------------------------------------------------------------------------------


def test_a_profiler_and_a_trace_do_not_affect_each_other(run_script, events, tmp_path):
    run = run_script(
        TRACING
        + textwrap.dedent("""
        from torch.profiler import profile, ProfilerActivity
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters())
        def profiled():
            with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
                train(net, optimizer, 2)
            return {row.key: [row.count, row.self_cpu_memory_usage, row.cpu_memory_usage] for row in seen.key_averages()}
        train(net, optimizer, 2)
        profiled()
        alone = profiled()
        start("both.trace")
        both = profiled()
        stop()
        start("alone.trace")
        train(net, optimizer, 2)
        stop()
        t.emit(alone=alone, both=both)
        """),
        args=[tmp_path],
        conf="bits:4,min_bytes:64KiB",
    ).check()
    assert run.json["both"] == run.json["alone"] and run.json["alone"]["aten::linear"][0] == 6
    assert any(row[1] > 0 for row in run.json["alone"].values()), "no memory was seen"

    def told(name):
        # Pages go back to the system when time has passed, and come again.
        fields, others = ("kind", "phase", "step", "bytes", "class", "op", "line"), ("present", "pages_release", "pages_touch", "pages_move")
        rows = [row for row in events(tmp_path / f"{name}.trace") if row["device"] and row["kind"] not in others]
        return [tuple(row[field] for field in fields) for row in rows]

    alone = told("alone")
    assert len(alone) > 50 and told("both") == alone


def test_a_compiled_model(run_script, summarised, tmp_path):
    run = run_script(
        TRACING
        + textwrap.dedent("""
        net = Net()
        compiled = torch.compile(net, backend="aot_eager")
        x = torch.randn(512, 160)
        def passes():
            net.zero_grad()
            for _ in range(2):
                compiled(x).square().mean().backward()
            return t.digest(*t.gradients(net))
        passes()
        without = passes()
        bridge.pleat_reset_peaks()
        start("compiled.trace")
        traced = passes()
        stop()
        t.emit(without=without, traced=traced, graphs=torch._dynamo.utils.counters["stats"]["unique_graphs"])
        """),
        args=[tmp_path],
        conf="bits:lossless,min_bytes:64KiB",
    ).check()
    assert run.json["traced"] == run.json["without"] and run.json["graphs"] == 1
    summary = summarised(tmp_path / "compiled.trace")
    host = summary["host"]
    assert summary["disagreements"] == summary["lost_events"] == 0
    assert host["peak_live"]["phase"] in ("forward", "backward") and len(host["steps"]) >= 2
    for peak, figure in (("peak_live", "requested"), ("peak_saved_raw", "saved_raw"), ("peak_restored", "restored")):
        assert host[peak]["bytes"] == run.stats["bytes"][figure]["peak"] > 0
    assert "Torch-Compiled Region" in " ".join(row["op"] or "" for row in host["by_operator"])
