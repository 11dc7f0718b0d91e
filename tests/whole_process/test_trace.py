"""Traces of whole processes: the file matches the events, and the program is not affected."""

import json
import pathlib
import re
import stat
import subprocess
import textwrap

import pytest

from conftest import LOSSY, STOCK_ONLY, assert_identical
from traced import TRACING, blocks, events, record, summarised  # noqa: F401  fixtures

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="about Pleat's own files")


def of(line_table):
    return [(row["class"], row["line"] or "") for row in line_table]


def test_peaks_are_the_allocators_own_to_the_byte(run_script, summarised, tmp_path):
    modes = ["bits:4", "bits:lossless", "bits:off", "bits:4,place:inplace,when:forward_end", "bits:2,min_bytes:0"]
    run = run_script(
        TRACING
        + textwrap.dedent(f"""
        modes = {modes!r}
        figures = []
        for i, mode in enumerate(modes):
            t.bridge().enable("place:arena,when:release,min_bytes:64KiB," + mode)
            bridge.pleat_reset_peaks()
            before = t.bridge().stats()["time"]["encode_ns"]
            start(f"{{i}}.trace")
            net = Net()
            train(net, torch.optim.AdamW(net.parameters()), 4)
            del net
            stop()
            figures.append(t.bridge().stats()["bytes"] | {{"encode_ns": t.bridge().stats()["time"]["encode_ns"] - before}})
        t.emit(figures=figures)
        """),
        args=[tmp_path],
    )
    assert run.returncode == 0, run.stderr
    kinds = {"peak_live": "requested", "peak_active": "active", "peak_reserved": "reserved", "peak_payload": "payload",
             "peak_saved_raw": "saved_raw", "peak_restored": "restored"}
    for i, (mode, figures) in enumerate(zip(modes, run.json["figures"])):
        summary = summarised(tmp_path / f"{i}.trace")
        host = summary["host"]
        assert {name: host[name]["bytes"] for name in kinds} == {name: figures[kind]["peak"] for name, kind in kinds.items()}, mode
        spent = host["compression"]
        assert spent["encode_ns"] == (0 if mode == "bits:off" else figures["encode_ns"]) and (spent["restore_ns"] > 0) == (spent["compressed"] > 0), mode
        assert host["peak_payload"]["bytes"] > 0 or mode in ("bits:off", "bits:lossless")
        assert host["peak_saved_raw"]["bytes"] > 0 and host["peak_live"]["bytes"] > 1 << 20
        assert summary["disagreements"] == 0 and summary["lost_events"] == 0 and not summary["incomplete"]
        moment = host["moment"]
        assert sum(moment["classes"].values()) == moment["live_bytes"] == host["peak_live"]["bytes"]
        # All blocks are in segments of the trace, including blocks from before it.
        in_use = moment["segment_bytes"] - moment["free_in_segments_bytes"]
        assert moment["live_bytes"] <= in_use <= moment["active_bytes"], mode
        assert moment["classes"]["unknown"] <= 0.02 * moment["live_bytes"], mode


def test_a_trace_changes_no_value(run_script, tmp_path):
    script = TRACING + textwrap.dedent("""
        net = Net()
        losses = [train(net, torch.optim.AdamW(net.parameters()), 1) for _ in range(4)]
        random = torch.rand(3)
        t.emit(losses=losses, random=random, **{k.replace(".", "_"): v for k, v in net.state_dict().items()})
    """)
    without = run_script(script, conf=LOSSY, args=[tmp_path])
    traced = run_script(script, conf=f"{LOSSY},stacks:both,trace:{tmp_path / 't.trace'}", args=[tmp_path])
    assert without.returncode == traced.returncode == 0, traced.stderr
    assert (tmp_path / "t.trace").exists()
    assert_identical(traced.json, without.json)
    assert traced.stdout == without.stdout and traced.stderr == without.stderr


def test_the_summary_names_the_process(run_script, summarised, tmp_path):
    run = run_script(
        TRACING
        + textwrap.dedent("""
        class Hungry(torch.optim.SGD):
            def step(self):
                if not hasattr(self, "large"):
                    self.large = [torch.zeros(1 << 20) for _ in range(4)]  # hungry
                return super().step()
        def traced(name, make, steps, rows=512, keep=None):
            start(name)
            net = Net()
            train(net, make(net.parameters()), steps, rows, keep)
            stop()
        sgd = lambda parameters: torch.optim.SGD(parameters, lr=1e-3)
        kept = []
        def leak(step):
            kept.append(torch.ones(1 << 18))  # the leak
        traced("leak.trace", sgd, 9, keep=leak)
        kept.clear()
        class Remembers(Net):
            def forward(self, x):
                y = super().forward(x)
                kept.append(y * 2)  # forgotten
                return y
        start("forgotten.trace")
        net = Remembers()
        train(net, sgd(net.parameters()), 8)
        stop()
        kept.clear()
        traced("state.trace", lambda parameters: Hungry(parameters, lr=1e-3), 3)
        traced("batch.trace", sgd, 3, rows=20000)
        t.emit(done=1)
        """),
        args=[tmp_path],
        conf="bits:off",
    )
    assert run.returncode == 0, run.stderr
    growth = summarised(tmp_path / "leak.trace")["host"]["growth"]
    assert "leak" in growth["lines"][0]["line"]
    assert growth["lines"][0]["bytes_per_step"] == pytest.approx(1 << 20, rel=0.02)
    forgotten = summarised(tmp_path / "forgotten.trace")["host"]
    assert "Remembers.forward" in forgotten["growth"]["lines"][0]["line"], forgotten["growth"]
    assert forgotten["growth"]["lines"][0]["bytes_per_step"] == pytest.approx(512 * 160 * 4, rel=0.02)
    state = summarised(tmp_path / "state.trace")["host"]
    assert state["by_line"][0]["class"] == "optimizer state" and "step" in state["by_line"][0]["line"]
    assert state["moment"]["classes"]["optimizer state"] == 16 << 20
    batch = summarised(tmp_path / "batch.trace")["host"]
    assert re.search(r" (train|Net\.forward)$", batch["by_line"][0]["line"])
    assert batch["by_line"][0]["bytes"] >= 20000 * 160 * 4 


def test_phases_steps_and_forward_lines(run_script, summarised, tmp_path):
    """Also with a step by hand, several passes a step, and an evaluation in between."""
    run = run_script(
        TRACING
        + textwrap.dedent("""
        def first_layer(net, x):
            return F.gelu(net.inner(x))
        def second_layer(net, x):
            return torch.tanh(net.middle(x))
        def step(net, passes):
            for _ in range(passes):
                net.outer(second_layer(net, first_layer(net, torch.randn(512, 160)))).square().mean().backward()
        net = Net()
        start("by_hand.trace")
        for _ in range(3):
            step(net, 1)
            with torch.no_grad():
                for p in net.parameters():
                    p -= 1e-3 * p.grad
                    p.grad = None
        stop()
        del p  # it is a parameter
        net = Net()
        optimizer = torch.optim.Adam(net.parameters())
        start("optimizer.trace")
        for _ in range(3):
            step(net, 2)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                net(torch.randn(512, 160))
        stop()
        t.emit(done=1)
        """),
        args=[tmp_path],
    )
    assert run.returncode == 0, run.stderr
    for name in ("by_hand", "optimizer"):
        summary = summarised(tmp_path / f"{name}.trace", "--top", "100")
        host = summary["host"]
        with_forward = [row["step"] for row in host["steps"] if row["peak_bytes"] > 1 << 20]
        assert {0, 1, 2} <= set(with_forward) and max(with_forward) <= 4, name
        assert host["peak_restored"]["phase"] == "backward"
        assert host["peak_payload"]["phase"] in ("forward", "backward")
        lines = {row["line"] for row in host["compression"]["lines"]}
        assert any("first_layer" in line for line in lines) and any("second_layer" in line for line in lines)
        restored = [row for row in host["compression"]["lines"] if row["restored_bytes"]]
        assert restored and all("layer" in row["line"] or "forward" in row["line"] or "step" in row["line"] for row in restored)
    adam = summarised(tmp_path / "optimizer.trace", "--at", "end")["host"]["moment"]["classes"]
    weights = 3 * (160 * 160 + 160) * 4
    assert adam["optimizer state"] == 2 * weights + 6 * 4  # and the number of the step of each
    assert adam["parameters"] == weights


ODD_NAMES = TRACING + textwrap.dedent('''
    start("names.trace")
    made = {}
    for number, (file, name) in enumerate([("caf\\u00e9.py", "gr\\u00f6\\u00dfe"), ("<ipython-input-1-abc>", "cell"), ("<string>", "plain"),
                                           ("a;b\\nc.py", "semi"), ("x" * 9000, "long")]):
        space = {"torch": torch}
        exec(compile(f"def {name}(keep):\\n    keep.append(torch.ones(1 << {16 + number}))\\n", file, "exec"), space)
        made[name] = space[name]
    keep = []
    for function in made.values():
        function(keep)
    import functools
    keep.append(functools.partial(torch.ones, 1 << 21)())
    keep.extend(map(torch.ones, [1 << 22]))
    stop()
    t.emit(done=1)
''')


def test_small_tensors_are_counted_by_mallocs_bytes(run_script, summarised, tmp_path):
    run = run_script(
        TRACING
        + textwrap.dedent("""
        libc = ctypes.CDLL(None)
        class Info(ctypes.Structure):
            _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]
        libc.mallinfo2.restype = Info
        in_use = lambda: libc.mallinfo2().uordblks
        torch.empty(1)
        sizes = [8 << 10, 20 << 10, 33 << 10, 60 << 10]
        start("small.trace")
        before = in_use()
        kept = [torch.empty(sizes[i % 4], dtype=torch.uint8) for i in range(2000)]
        most = in_use() - before
        import time
        time.sleep(0.2)  # the writer looks twenty times a second
        gone = [torch.empty(8 << 10, dtype=torch.uint8) for _ in range(100)]
        del gone
        stop()
        t.emit(most=most)
        """),
        args=[tmp_path],
        conf="bits:off",
    )
    assert run.returncode == 0, run.stderr
    assert summarised(tmp_path / "small.trace")["small_peak_bytes"] == pytest.approx(run.json["most"], rel=0.05)


def test_lines_of_generated_code(run_script, summarised, tmp_path):
    run = run_script(ODD_NAMES, args=[tmp_path])
    assert run.returncode == 0, run.stderr
    lines = [row["line"] for row in summarised(tmp_path / "names.trace", "--at", "end")["host"]["by_line"]]
    text = "\n".join(map(str, lines))
    for wanted in ("café.py:2 größe", "<ipython-input-1-abc>:2 cell", "<string>:2 plain", "semi"):
        assert wanted in text, text


EDGES = {
    "an exception": "raise ValueError('of the script')",
    "an end at once": "import time; time.sleep(0.6); os._exit(7)",
    "an end by exit": "sys.exit(5)",
    "a thread that stays in an operator":
"""
        import threading, time
        threading.Thread(target=lambda: torch.linalg.svd(torch.randn(2500, 2500)), daemon=True).start()
        time.sleep(0.2)
    """,
    "a handler of signals":
"""
        import signal, time
        signal.signal(signal.SIGALRM, lambda *_: torch.ones(1 << 16))
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        train(net, optimizer, 5)
        signal.setitimer(signal.ITIMER_REAL, 0)
    """,
    "a profiler":
"""
        from torch.profiler import profile, ProfilerActivity
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
            train(net, optimizer, 2)
        assert any(row.key == "aten::linear" for row in seen.key_averages())
    """,
    "hooks of the user":
"""
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(1) or x, lambda x: x):
            train(net, optimizer, 2)
        assert packed
    """,
    "switched off": "t.bridge().disable(); train(net, optimizer, 2)",
    "all descriptors closed": "import time; time.sleep(0.6); os.closerange(3, 256); train(net, optimizer, 2)",
    "a fork":
"""
        pid = os.fork()
        if pid == 0:
            train(net, optimizer, 2)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        train(net, optimizer, 2)
    """,
    "gradients of gradients":
"""
        x = torch.randn(512, 160, requires_grad=True)
        g, = torch.autograd.grad(net(x).square().sum(), x, create_graph=True)
        g.square().sum().backward()
    """,
}


# Their ends are their own: an interpreter that has only just begun, and no fork of one.
FRESH_EDGES = ("an exception", "an end at once", "an end by exit", "a thread that stays in an operator")


@pytest.mark.parametrize("edge", EDGES)
def test_a_program_ends_as_it_would_have(edge, run_script, summarised, tmp_path):
    fresh = edge in FRESH_EDGES
    optimizer = None if fresh else "torch.optim.AdamW(net.parameters())"
    script = (
        TRACING
        + f"net = Net()\noptimizer = {optimizer}\ntrain(net, optimizer, 2)\nprint('trained', flush=True)\n"
        + textwrap.dedent(EDGES[edge])
    )
    file = tmp_path / "edge.trace"
    traced = run_script(script, conf=f"{LOSSY},trace:{file}", args=[tmp_path], fresh=fresh)
    assert traced.returncode == {"an exception": 1, "an end at once": 7, "an end by exit": 5}.get(edge, 0), traced.stderr
    assert traced.stdout == "trained\n"
    if edge == "all descriptors closed":
        assert traced.stderr == f"pleat: the trace {file} ends here: its file was closed\n"
    elif edge not in ("an exception", "a profiler"):  # which print lines
        assert traced.stderr == ""
    summary = summarised(file)
    assert summary["events"] > 50 and summary["host"]["peak_live"]["bytes"] > 1 << 20
    assert summary["incomplete"] == (edge in ("an end at once", "all descriptors closed"))


SECRET = 0x53454352  # of all elements of four tensors


@pytest.fixture(scope="module")
def ranks(runner, tmp_path_factory):
    """The folder with the traces of a rank and of its child."""
    folder = tmp_path_factory.mktemp("ranks")
    script = TRACING + textwrap.dedent(f"""
        import subprocess
        keep = [torch.full((1 << 18,), {SECRET}, dtype=torch.int32) for _ in range(4)]
        net = Net()
        train(net, None, 2)
        if sys.argv[-1] != "child":
            subprocess.run([sys.executable, *sys.argv, "child"], check=True)
        t.emit(pid=os.getpid())
    """)
    run = runner.run(script, conf=f"{LOSSY},trace:{folder}/run.trace", args=[folder, "argument-of-the-command"],
                     env={"RANK": "3", "WORLD_SIZE": "4", "SECRET_VARIABLE": "value-of-the-variable"})
    assert run.returncode == 0, run.stderr
    return folder


def test_ranks_and_children_have_files_of_their_own(command, ranks, summarised):
    files = sorted(path.name for path in ranks.glob("*.trace"))
    assert len(files) == 2 and "run.rank3.trace" in files, files
    other = next(name for name in files if name != "run.rank3.trace")
    assert re.fullmatch(r"run\.rank3\.\d+\.trace", other)
    for name in files:
        summary = summarised(ranks / name)
        assert summary["process"]["rank"] == 3 and summary["process"]["world_size"] == 4
        assert stat.S_IMODE((ranks / name).stat().st_mode) == 0o600
    merged = [command, "trace", "merge", "--json", ranks]
    assert "these are missing: 0-2;" in subprocess.run(merged, capture_output=True, text=True).stderr
    merged = json.loads(subprocess.run([*merged, "--allow-missing"], capture_output=True, text=True).stdout)
    assert [one["is_helper"] for one in merged["ranks"]] == [False, True]
    own, child = [one["devices"][0]["peak_live_bytes"] for one in merged["ranks"]]
    assert max(own, child) < merged["together"][0]["live_bytes"] <= own + child  # the parent waits, and holds its model


def test_record_starts_the_program_in_its_place(record, summarised, test_python, tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import os, sys, torch\ntorch.ones(1 << 18)\nprint(os.getpid())\nsys.exit(int(sys.argv[1]))\n")
    process, out, err = record("-o", "a.trace", "--", test_python, script, "9")
    assert process.returncode == 9 and int(out) == process.pid
    assert err == f"pleat: {err.split()[1]} events are in the trace; next: pleat trace summary {tmp_path / 'a.trace'}\n"
    before = (tmp_path / "a.trace").read_bytes()
    process, out, err = record("-o", "a.trace", "--", test_python, script, "9")
    assert process.returncode == 2 and out == "" and "--force" in err and len(err.splitlines()) == 1
    assert (tmp_path / "a.trace").read_bytes() == before
    assert summarised(tmp_path / "a.trace")["process"]["command"] is None
    process, out, err = record("--force", "--with-command", "-o", "a.trace", "--", test_python, script, "0", "caf\u00e9", "a b")
    assert process.returncode == 0 and (tmp_path / "a.trace").read_bytes() != before
    assert summarised(tmp_path / "a.trace")["process"]["command"] == f"{test_python} {script} 0 caf\u00e9 a b"
    for words, said in ((["-o", "no/folder/a.trace", "--", "true"], "no such folder"), (["-o", "a.trace"], "no program"),
                        (["-o", "", "--", "true"], "no file")):
        process, out, err = record(*words)
        assert process.returncode == 2 and said in err, err
    (tmp_path / "link.trace").symlink_to(tmp_path / "elsewhere")
    process, out, err = record("--force", "-o", "link.trace", "--", "true")
    assert process.returncode == 2 and (tmp_path / "link.trace").is_symlink()


def test_the_summary_finds_the_leak_of_the_example(command, summarised, repository, test_python, preload_library, tmp_path):
    """tools/demo/leak.py, and its output in docs/trace.md."""
    example = repository / "tools" / "demo" / "leak.py"
    trace = tmp_path / "leak.trace"
    done = subprocess.run([command, "trace", "record", "-o", trace, "--", test_python, example], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("loss "), done.stderr
    (leaking,) = (i for i, line in enumerate(example.read_text().splitlines(), 1) if "seen.append(" in line)
    first, *rest = summarised(trace)["host"]["growth"]["lines"]
    assert first["line"] == f"{example}:{leaking} watch" and first["op"] == "aten::clone" and not rest
    assert first["bytes_per_step"] == 1 << 20
    shown = subprocess.run([command, "trace", "summary", "--max-growth", "1000KiB/step", trace], capture_output=True, text=True)
    assert shown.returncode == 3 and "over --max-growth" in shown.stderr
    begin = shown.stdout.index("host, growth over steps")
    table = shown.stdout[begin : shown.stdout.index("\n\n", begin)]
    assert textwrap.indent(table, "    ") in (repository / "docs" / "trace.md").read_text()


def test_the_package_traces_a_part_of_a_script(run_script, summarised, tmp_path):
    package = str(pathlib.Path(__file__).parents[2] / "torch_bridge" / "python")
    run = run_script(
        TRACING
        + textwrap.dedent(f"""
        sys.path.insert(0, {package!r})
        import pathlib, pleat
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters())
        assert pleat.trace.path() is None and not pleat.trace.stop()
        with pleat.trace.recording(pathlib.Path(folder) / "part.trace"):
            assert pleat.trace.path() == os.path.join(folder, "part.trace")
            train(net, optimizer, 2)
            try:
                pleat.trace.start(os.path.join(folder, "second.trace"))
                raise AssertionError("two at once")
            except pleat.PleatError as error:
                assert "already" in str(error)
        for path, why in ((os.path.join(folder, "part.trace"), "File exists"), (os.path.join(folder, "no", "x"), "No such file"), ("", "named")):
            try:
                pleat.trace.start(path)
                raise AssertionError(path)
            except pleat.PleatError as error:
                assert why in str(error), error
        t.emit(done=1)
        """),
        args=[tmp_path],
    )
    assert run.returncode == 0, run.stderr
    classes = summarised(tmp_path / "part.trace", "--at", "end")["host"]["moment"]["classes"]
    assert classes["parameters"] == 3 * (160 * 160 + 160) * 4  # though they were there before
    assert not (tmp_path / "second.trace").exists()


def test_the_file_has_no_contents_no_environment_and_no_command(ranks):
    files = list(ranks.glob("*.trace"))
    assert len(files) == 2
    for path in files:
        data = b"".join(contents for _, _, contents in blocks(path))
        for hidden in (SECRET.to_bytes(4, "little") * 4, b"SECRET_VARIABLE", b"value-of-the-variable", b"argument-of-the-command"):
            assert hidden not in data
        assert b"aten::" in data


def test_the_phase_in_which_a_block_is_made(run_script, events, tmp_path):
    run = run_script(
        TRACING
        + textwrap.dedent("""
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        start("a.trace")
        kept = []
        for rows in (1010, 1020):
            x = torch.zeros(rows, 160)                              # data; before the first step: other
            loss = net(x).square().mean()
            loss.backward()
            kept.append(torch.ones(2 * rows, 160))                  # between
            optimizer.step()
            with torch.no_grad():
                kept.append(torch.full((3 * rows, 160), 7.0))       # an evaluation: other
        stop()
        """),
        args=[tmp_path],
        conf="bits:off,min_bytes:64KiB",
    )
    assert run.returncode == 0, run.stderr
    phases = {}
    for row in events(tmp_path / "a.trace"):
        if row["kind"] == "allocate":
            phases.setdefault((row["op"], row["bytes"] // 640), set()).add(row["phase"])
    for rows, before in ((1010, "other"), (1020, "data")):
        assert phases["aten::zeros", rows] == {before}
        assert phases["aten::ones", 2 * rows] == {"between"} and phases["aten::full", 3 * rows] == {"other"}
        assert phases["aten::linear", rows] == phases["aten::gelu", rows] == {"forward"}
        assert {phase for (op, size), of in phases.items() if "Backward" in op and size == rows for phase in of} == {"backward"}
    assert phases["aten::clone", 160] == {"optimizer"}, "momentum"
