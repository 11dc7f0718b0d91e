"""Traces of unusual programs: threads without Python, children, ranks, impossible files."""

import json
import pathlib
import shutil
import stat
import subprocess
import textwrap

import pytest

from conftest import LOSSY, STOCK_ONLY, SUPPORT, clean_environment
from traced import TRACING, events, made, record, summarised  # noqa: F401  fixtures

pytestmark = [
    pytest.mark.skipif(STOCK_ONLY, reason="about Pleat's own files"),
    pytest.mark.rotating(set="edges of traces", share=3),
]


# ---- threads ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def around_python(test_python, preload_library, torch_version, tmp_path_factory):
    """Runs around_python.c under Pleat. Where a second trace is named, Python begins and ends in it."""
    asked = "import importlib.util, json, sysconfig, sys; torch = importlib.util.find_spec('torch').submodule_search_locations[0];"
    asked += "print(json.dumps([torch, sys.base_prefix, *map(sysconfig.get_config_var, ('LIBDIR', 'INSTSONAME'))]))"
    done = subprocess.run([test_python, "-c", asked], capture_output=True, text=True, check=True, env=clean_environment("LD_"))
    torch, home, folder, name = json.loads(done.stdout)
    program = tmp_path_factory.mktemp("around") / "around_python"
    libraries = [f"-L{torch}/lib", f"-Wl,-rpath,{torch}/lib", "-Wl,--no-as-needed,--allow-shlib-undefined", "-ltorch_cpu", "-lc10"]
    subprocess.run(["gcc", "-O1", "-rdynamic", "-o", program, SUPPORT / "around_python.c", *libraries, "-ldl", "-pthread"], check=True)
    bridge = preload_library.with_name(f"libpleat_bridge_torch{'.'.join(torch_version.split('.')[:2])}.so")

    def run(first, *second):
        python = pathlib.Path(folder) / name
        if second and not (name.endswith((".so", ".so.1.0")) and python.exists()):
            pytest.skip("this Python is in no library")
        environment = clean_environment("LD_") | {
            "LD_PRELOAD": str(preload_library), "PLEAT_CONF": f"bits:off,trace:{first}", "PYTHONHOME": home}  # fmt: skip
        words = [program, bridge, python, *second] if second else [program, bridge]
        return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120)

    return run


def test_a_program_without_python(around_python, summarised, events, tmp_path):
    done = around_python(tmp_path / "first.trace")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    summary, rows = summarised(tmp_path / "first.trace"), events(tmp_path / "first.trace")
    assert not summary["incomplete"] and summary["disagreements"] == summary["lost_events"] == 0
    for kib in (1100, 1200):
        (row,) = made(rows, kib)
        assert row["stack"] == []
    assert [row["kind"] for row in rows if row["block"] == made(rows, 1100)[0]["block"]] == ["allocate", "free"]


def test_threads_allocate_before_python_is_up_and_after_it_is_finalised(around_python, summarised, events, tmp_path):
    done = around_python(tmp_path / "first.trace", tmp_path / "second.trace")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for name in ("first", "second"):
        summary = summarised(tmp_path / f"{name}.trace")
        assert not summary["incomplete"] and summary["disagreements"] == summary["lost_events"] == 0
    assert all(row["stack"] == [] for row in events(tmp_path / "first.trace")), "before Python there are no lines of it"
    rows = events(tmp_path / "second.trace")
    (from_python,), (after,) = made(rows, 1300), made(rows, 1400)
    assert from_python["stack"] == ["<string>:4 from_python", "<string>:5 <module>"]
    assert after["stack"] == []
    assert {tuple(row["stack"]) for row in made(rows, 100)} == {()}, "a thread that Python does not know"
    for kib in (100, 200):  # both went on
        assert min(row["time_s"] for row in made(rows, kib)) < after["time_s"] < max(row["time_s"] for row in made(rows, kib))


def test_a_block_may_be_freed_in_another_thread(run_script, summarised, events, tmp_path):
    run = run_script(
        TRACING
        + textwrap.dedent("""
        import threading
        from queue import Queue
        start("threads.trace")
        handed, back = Queue(), Queue()
        def make(number):  # the thread has ended when the last of its blocks is freed
            for i in range(40):
                handed.put(torch.empty((1 << 16) + 64 * number))
        def drop():
            while (tensor := handed.get()) is not None:
                del tensor
                back.put(1)
        dropper = threading.Thread(target=drop)
        makers = [threading.Thread(target=make, args=(number,)) for number in range(4)]
        for maker in makers: maker.start()
        for maker in makers: maker.join()
        dropper.start()
        handed.put(None)
        dropper.join()
        stop()
        t.emit(dropped=back.qsize())
        """),
        args=[tmp_path],
        conf="bits:off",
    ).check()
    assert run.json["dropped"] == 160
    summary, rows = summarised(tmp_path / "threads.trace", "--at", "end"), events(tmp_path / "threads.trace")
    assert summary["disagreements"] == summary["lost_events"] == 0
    assert summary["host"]["peak_live"]["bytes"] >= 160 << 18
    freed = {row["block"] for row in rows if row["kind"] == "free"}
    for number in range(4):
        blocks = [row["block"] for row in rows if row["kind"] == "allocate" and row["bytes"] == ((1 << 16) + 64 * number) * 4]
        assert len(blocks) == 40 and freed.issuperset(blocks)


# ---- processes -------------------------------------------------------------------------------------

LOADERS = TRACING + textwrap.dedent("""
    class Data(torch.utils.data.Dataset):
        def __len__(self): return 8
        def __getitem__(self, i): return torch.ones(1 << 18).sum() + i, os.getpid()
    if __name__ == "__main__":
        net = Net()
        train(net, None, 2)
        workers = {}
        for method in ("fork", "spawn"):
            loader = torch.utils.data.DataLoader(Data(), 4, num_workers=1, multiprocessing_context=method)
            sums, pids = zip(*loader)
            assert sum(part.sum().item() for part in sums) == 8 * (1 << 18) + 28
            (workers[method],) = {pid for part in pids for pid in part.tolist()}
        train(net, None, 2)
        t.emit(pid=os.getpid(), workers=workers)
""")


@pytest.mark.slow
def test_workers_of_data_loaders(run_script, summarised, events, tmp_path):
    """One that was forked is silent, one that was spawned has a file of its own."""
    run = run_script(LOADERS, conf=f"{LOSSY},trace:{tmp_path}/run.trace", args=[tmp_path], fresh=True).check()
    assert run.stderr == ""
    spawned = run.json["workers"]["spawn"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["run.trace", f"run.{spawned}.trace"])
    for path, pid in ((tmp_path / "run.trace", run.json["pid"]), (tmp_path / f"run.{spawned}.trace", spawned)):
        summary = summarised(path)
        assert summary["process"]["pid"] == pid and summary["disagreements"] == summary["lost_events"] == 0
        assert not summary["incomplete"]
    assert len(made(events(tmp_path / f"run.{spawned}.trace"), 1024)) == 8
    assert not made(events(tmp_path / "run.trace"), 1024)


RANK = """
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 128)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(3):
        model(torch.randn(256 * (1 + dist.get_rank()), 128)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_torchrun_with_two_ranks(record, summarised, test_python, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(textwrap.dedent(RANK))
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script)
    process, _, err = record("-o", "run.trace", "--bits", "4", "--", test_python, *launcher, OMP_NUM_THREADS="1")
    assert process.returncode == 0, err
    files = sorted(path.name for path in tmp_path.glob("*.trace"))
    assert files == ["run.rank0.trace", "run.rank1.trace", "run.trace"]  # the last is the launcher's
    told = [line.split()[-1] for line in err.splitlines() if line.startswith("pleat: ")]
    assert sorted(told) == [str(tmp_path / name) for name in files]
    assert summarised(tmp_path / "run.trace")["process"]["pid"] == process.pid
    live = []
    for rank in range(2):
        summary = summarised(tmp_path / f"run.rank{rank}.trace")
        assert summary["process"]["rank"] == summary["process"]["local_rank"] == rank
        assert summary["process"]["world_size"] == 2
        assert not summary["incomplete"] and summary["disagreements"] == summary["lost_events"] == 0
        assert len(summary["host"]["steps"]) >= 3 and summary["host"]["compression"]["compressed"] > 0
        live.append(summary["host"]["peak_live"]["bytes"])
    assert live[1] > live[0], "each file is of its own rank: the second has the larger batch"


def test_a_program_that_executes_another(record, summarised, events, test_python, tmp_path):
    """A trace ends where its program was replaced; the next program has the same process, and its own file; so has a third."""
    script = tmp_path / "again.py"
    script.write_text(textwrap.dedent("""
        import os, sys, time, torch
        kept = torch.ones(1 << 17 + len(sys.argv))
        if len(sys.argv) < 3:
            time.sleep(0.6)
            os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
        print([os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2 and
               os.path.exists(f"/proc/self/fd/{fd}") and os.readlink(f"/proc/self/fd/{fd}").endswith(".trace")])
        sys.exit(5)
    """))
    process, out, err = record("-o", "run.trace", "--", test_python, script)
    second, third = f"run.{process.pid}.trace", f"run.{process.pid}-2.trace"
    assert process.returncode == 5
    assert out == f"['{tmp_path / third}']\n", "the first programs' files did not stay open"
    assert err.splitlines() == [f"pleat: {err.split()[1]} events are in the trace; next: pleat trace summary {tmp_path / third}"]
    for name, incomplete, kib in (("run.trace", True, 1024), (second, True, 2048), (third, False, 4096)):
        summary = summarised(tmp_path / name)
        assert summary["process"]["pid"] == process.pid and summary["incomplete"] == incomplete
        assert len(made(events(tmp_path / name), kib)) == 1


# ---- files -----------------------------------------------------------------------------------------


def test_existing_files_are_left_alone_and_new_ones_are_private(run_script, summarised, tmp_path):
    """By hand they are refused; where PLEAT_CONF names one, which children and ranks do too, another is taken."""
    (tmp_path / "link.trace").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "folder")
    (tmp_path / "there.trace").write_text("precious")
    run = run_script(
        TRACING
        + textwrap.dedent("""
        import errno
        kept = torch.ones(1 << 18)
        stop()  # that of PLEAT_CONF
        os.umask(0)
        refused = {name: why_not(name) for name in ("link.trace", "there.trace", "no/x.trace", "/dev/null", "x" * 300)}
        start("linked/")
        stop()
        start("%%%p%l.trace")
        stop()
        t.emit(pid=os.getpid(), refused=refused)
        """),
        args=[tmp_path],
        conf=f"bits:off,trace:{tmp_path}/link.trace",
    ).check()
    assert run.stderr == ""
    whys = {"link.trace": "File exists", "there.trace": "File exists", "no/x.trace": "No such file", "/dev/null": "File exists",
            "x" * 300: "File name too long"}  # fmt: skip
    for name, why in whys.items():
        assert why in run.json["refused"][name] and "\n" not in run.json["refused"][name], run.json["refused"]
    assert (tmp_path / "there.trace").read_text() == "precious" and not (tmp_path / "elsewhere").exists()
    pid = run.json["pid"]
    new = {f"link.{pid}.trace", "folder/pleat.trace", f"%{pid}0.trace"}
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.trace")} == new | {"link.trace", "there.trace"}
    for name in new:
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        assert summarised(tmp_path / name)["process"]["pid"] == pid


def may_mount():
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "--uts", "sh", "-c", "mount -t tmpfs none /mnt"],
                          capture_output=True)  # fmt: skip
    return done.returncode == 0


@pytest.mark.skipif(shutil.which("unshare") is None or not may_mount(), reason="a user may not mount here")
def test_disks_that_are_full_or_read_only_and_a_host_with_a_slash(summarised, test_python, preload_library, tmp_path):
    """Each of them costs the job at most one line."""
    for name in ("full", "fixed", "kept"):
        (tmp_path / name).mkdir()
    script = tmp_path / "program.py"
    script.write_text(
        TRACING
        + textwrap.dedent("""
        import random, shutil, socket, time
        for name in ("fixed/b.trace", "fixed/"):
            assert "Read-only file system" in why_not(name), why_not(name)
        socket.sethostname("a/b")
        assert why_not("%h.trace") == "%h is 'a/b' here, which is no part of a name"
        assert why_not("/%h") == "%h is 'a/b' here, which is no part of a name"
        socket.sethostname("..")
        assert why_not("%h/x.trace") == "%h is '..' here, which is no part of a name"
        start("full/x.trace")
        net = Net()
        train(net, None, 2)
        time.sleep(0.3)  # written
        for turn in range(40):
            held = [torch.empty(random.randrange(1 << 14, 1 << 20)) for _ in range(400)]
            del held
            time.sleep(0.01)
        train(net, None, 2)
        stop()
        shutil.copy(os.path.join(folder, "full/x.trace"), os.path.join(folder, "kept/x.trace"))
        print("trained")
        """)
    )
    mounts = 'mount -t tmpfs -o size=64k none "$1/full" && mount -t tmpfs -o ro none "$1/fixed" && exec "$2" "$3" "$1"'
    environment = clean_environment("LD_") | {"PYTHONPATH": str(SUPPORT), "LD_PRELOAD": str(preload_library),
                                             "PLEAT_CONF": f"bits:off,trace:{tmp_path}/fixed/run.trace"}  # fmt: skip
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "--uts", "sh", "-c", mounts, "sh", tmp_path, test_python, script],
        capture_output=True, text=True, env=environment, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert done.stderr.splitlines() == [
        f"pleat: {tmp_path}/fixed/run.trace: Read-only file system; there is no trace",
        f"pleat: the trace {tmp_path}/full/x.trace ends here: No space left on device",
    ]
    assert (tmp_path / "kept" / "x.trace").stat().st_size <= 64 << 10
    summary = summarised(tmp_path / "kept" / "x.trace")
    assert summary["incomplete"] and summary["events"] > 50 and summary["host"]["compression"]["saved"] > 0


def test_signs_in_the_folder_are_no_signs(record, test_python, tmp_path):
    """`pleat trace record` makes the file's path absolute; only the user's own text is a pattern."""
    folder = tmp_path / "50%p of %h %% x%"
    folder.mkdir()
    words = ("-c", "import torch; torch.ones(1 << 18)")
    shell = ("env", "-C", str(folder))
    process, _, err = record("-o", "run.trace", "--", test_python, *words, before=shell)
    assert process.returncode == 0 and err.endswith(f" {folder / 'run.trace'}\n"), err
    assert [path.name for path in folder.iterdir()] == ["run.trace"]
