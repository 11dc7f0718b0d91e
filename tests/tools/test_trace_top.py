"""`pleat trace top`, the page when memory runs out, and parts of a trace: of processes that record for real."""

import json
import os
import pty
import select
import signal
import struct
import subprocess
import time

import pytest

from conftest import clean_environment
from recorded_trace import pleat  # noqa: F401  (a fixture)
from recording_process import recording
from traces_by_hand import simple_trace

MIB = 1 << 20
TRAINING = """
start(sys.argv[2])
phase(5)


def forward():
    return [allocate(MIB, "aten::linear") for _ in range(30)]


MIB = 1 << 20
allocate(7 * MIB, "aten::randn", 5)
phase(1, 3)
kept = forward()
for block in kept[20:]:
    free(block)
phase(2, 3)
allocate(2 * MIB, "aten::mm", 2)
time.sleep(1.3)
ready()
"""


@pytest.fixture
def library(build_dir):
    return build_dir / "lib" / "libpleat_recorder.so"


@pytest.fixture
def top(command, tmp_path):
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    environment = {**clean_environment("LD_"), "XDG_RUNTIME_DIR": str(runtime)}

    def call(*arguments, popen=False, **options):
        words = [command, "trace", "top", *map(str, arguments)]
        if popen:
            return subprocess.Popen(words, env=environment, text=True, **options)
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, **options)

    return call


def refused(done, *words):
    assert done.returncode == 2 and done.stdout == "", done
    assert done.stderr.startswith("pleat: ") and done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_what_lives_and_what_lived_at_the_peak(library, tmp_path, top):
    with recording(library, tmp_path, TRAINING, tmp_path / "t.trace") as job:
        told = json.loads(top(job.pid, "--once", "--json").stdout)
        text = top(job.pid, "--once").stdout
    (host,) = told["devices"]
    assert told["pid"] == job.pid and told["exact"] and host["device"] == "host"
    assert host["now"]["live_bytes"] == 29 * MIB and host["peak"]["live_bytes"] == 37 * MIB
    assert (host["now"]["step"], host["now"]["phase"]) == (3, "backward")
    for moment in (host["now"], host["peak"]):
        assert sum(moment["classes"].values()) == moment["live_bytes"]
    assert host["now"]["classes"]["inputs"] == 7 * MIB
    assert host["now"]["classes"]["kept"] == 20 * MIB
    assert host["now"]["classes"]["temporary"] == 2 * MIB
    assert host["now"]["resident_bytes"] > MIB
    first = told["lines"][0]
    assert (first["bytes"], first["blocks"], first["class"], first["op"]) == (20 * MIB, 20, "kept", "aten::linear")
    assert first["line"].startswith("job.py:") and first["line"].endswith(" tell")
    assert f"process {job.pid}, " in text and "temporary (so far)" in text and "29.00 MiB" in text


def test_elsewhere_one_line_a_second_until_the_job_ends(library, tmp_path, top):
    with recording(library, tmp_path, TRAINING, tmp_path / "t.trace") as job:
        watching = top(job.pid, "--interval", "0.2", popen=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        lines = [watching.stdout.readline() for _ in range(3)]
        job.stdin.write("\n")
        job.stdin.flush()
        job.wait(timeout=20)
        out, err = watching.communicate(timeout=20)
    assert all("host: live 29.00 MiB, peak 37.00 MiB, kept 20.00 MiB" in line for line in lines), lines
    assert watching.returncode == 0 and err == ""
    assert out.splitlines()[-1] in (f"process {job.pid} has ended", f"the trace of process {job.pid} has ended")


def test_a_job_that_is_killed_has_ended_though_nobody_has_asked_for_its_exit_code(library, tmp_path, top):
    with recording(library, tmp_path, TRAINING, tmp_path / "t.trace") as job:
        watching = top(job.pid, "--json", "--interval", "0.1", popen=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert json.loads(watching.stdout.readline())["pid"] == job.pid
        os.kill(job.pid, signal.SIGKILL)
        out, err = watching.communicate(timeout=20)
        assert watching.returncode == 0 and err == f"pleat: process {job.pid} has ended\n"
        assert all(json.loads(line) for line in out.splitlines())
        refused(top(job.pid), "there is no such process")  # its page is still there
        assert list((tmp_path / "run").iterdir())


def test_on_a_terminal_the_table_stays_in_its_place(library, tmp_path, top):
    with recording(library, tmp_path, TRAINING, tmp_path / "t.trace") as job:
        ours, theirs = pty.openpty()
        watching = top(job.pid, "--interval", "0.2", popen=True, stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        shown, until = b"", time.monotonic() + 10
        while shown.count(b"\x1b[J") < 2 and time.monotonic() < until:
            if select.select([ours], [], [], 0.5)[0]:
                shown += os.read(ours, 65536)
        watching.kill()
        watching.communicate()
        os.close(ours)
    frames = shown.split(b"\x1b[J")
    assert len(frames) >= 3
    up = int(frames[0].rsplit(b"\x1b[", 1)[1][:-1])
    assert frames[0].count(b"\n") == up, "the cursor goes up by what was printed"


def test_only_a_process_with_a_trace_has_a_page(library, tmp_path, top):
    refused(top(os.getpid()), "only a process with a trace has one", "pleat trace record")
    with recording(library, tmp_path, TRAINING + "recorder.stop()\nready()\n", tmp_path / "t.trace") as job:
        assert top(job.pid, "--once").returncode == 0
        job.stdin.write("\n")
        job.stdin.flush()
        assert job.stdout.readline()
        refused(top(job.pid), "only a process with a trace has one")


@pytest.mark.parametrize("word", ["0", "-3", "self", "99999999999999999999", ""])
def test_what_is_no_process(top, word):
    refused(top("--", word), f"PID: '{word}': allowed are the numbers of processes")


def test_intervals_are_held_to_their_range(top):
    for odd in ("0", "-1", "nan", "1e99", "soon"):
        refused(top(os.getpid(), f"--interval={odd}"), "seconds from 0.1 on")


# ---- a file that cannot be trusted ---------------------------------------------------------------

# Offsets in the page (interpose/trace/top.h).
SEQUENCE, DEVICES, LINES = 16, 56, 60
PAGE_LINES = 10 * (24 + 40 + 80)


@pytest.fixture
def page(library, tmp_path):
    """Bytes of a sound page of this very process, and where it would lie."""
    with recording(library, tmp_path, TRAINING, tmp_path / "sound.trace") as job:
        (path,) = (tmp_path / "run").iterdir()
        sound = bytearray(path.read_bytes())
    path.unlink()
    start = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
    sound[24:40] = struct.pack("<QQ", os.getpid(), start)
    return sound, tmp_path / "run" / f"pleat-{os.getpid()}.top"


def write(path, data, mode=0o600):
    path.unlink(missing_ok=True)
    path.write_bytes(bytes(data))
    path.chmod(mode)


def test_a_page_is_checked_before_a_word_of_it_is_shown(page, top):
    sound, path = page
    write(path, sound)
    assert top(os.getpid(), "--once").returncode == 0

    def changed(offset, fmt, *values):
        copy = bytearray(sound)
        struct.pack_into(fmt, copy, offset, *values)
        return copy

    for data in (
        b"",
        sound[:100],
        sound[:-1],
        bytes(len(sound)),
        changed(8, "<I", 2),  # another version
        changed(12, "<I", 5),
        changed(DEVICES, "<I", 10),
        changed(DEVICES, "<I", 1 << 31),
        changed(LINES, "<I", 11),
        changed(72, "<i", -2),
        changed(72, "<i", 4000),
        changed(len(sound) - PAGE_LINES + 16, "<I", 10),
        changed(SEQUENCE, "<Q", 7),  # it changes for ever
    ):
        write(path, data)
        refused(top(os.getpid(), "--once"), "no page that this version reads")
    for offset in (24, 32):  # of another process: that one's number was free again
        write(path, changed(offset, "<Q", 1))
        refused(top(os.getpid(), "--once"), "only a process with a trace has one")


def test_numbers_of_any_size_and_texts_with_controls_are_printable(page, top):
    sound, path = page
    odd = bytearray(sound)
    odd[72 + 8 : len(sound) - PAGE_LINES] = b"\xff" * (len(sound) - PAGE_LINES - 80)
    struct.pack_into("<I", odd, DEVICES, 1)
    struct.pack_into("<i", odd, 72, -1)
    line = len(sound) - PAGE_LINES
    odd[line : line + 16] = b"\xff" * 16
    odd[line + 24 : line + 144] = b"\x1b[31m\n" * 20
    write(path, odd)
    for options in (("--once",), ("--once", "--json")):
        done = top(os.getpid(), *options)
        assert done.returncode == 0 and "\x1b" not in done.stdout, done
    out = top(os.getpid(), "--interval", "0.1", popen=True, stdout=subprocess.PIPE)
    assert "\x1b" not in out.stdout.readline()
    out.kill()
    out.communicate()


def test_a_link_and_what_others_may_write_are_not_read(page, top, tmp_path):
    sound, path = page
    write(tmp_path / "elsewhere", sound)
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "elsewhere")
    refused(top(os.getpid(), "--once"))
    write(path, sound, 0o622)
    refused(top(os.getpid(), "--once"))
    path.unlink()
    os.mkfifo(path, 0o600)
    refused(top(os.getpid(), "--once"))


# ---- out of memory -------------------------------------------------------------------------------

OUT_OF_MEMORY = """
start(sys.argv[2])
phase(1)


def forward():
    return [allocate(1 << 20) for _ in range(30)]


kept = forward()
ready()
tell(21, 3 << 30, op="aten::bmm", phase=1)
recorder.page(b"out of memory: no room for 3.00 GiB")
os.kill(os.getpid(), 9)
"""


def test_out_of_memory_names_the_line_and_a_killed_job_still_says_so(library, tmp_path, pleat):  # noqa: F811
    script = tmp_path / "job.py"
    with recording(library, tmp_path, OUT_OF_MEMORY, tmp_path / "t.trace") as job:
        out, page = job.communicate("\n", timeout=20)
    assert out == "" and job.returncode == -signal.SIGKILL
    assert "pleat: out of memory: no room for 3.00 GiB" in page and "host: live 30.00 MiB" in page
    assert f"pleat trace summary --at oom {tmp_path}/t.trace says more" in page
    tells = 1 + script.read_text().split("event.stack =")[0].count("\n")
    assert f"job.py:{tells} tell" in page
    done = pleat("summary", "--json", "--at", "oom", tmp_path / "t.trace")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    (host,) = summary["devices"]
    assert summary["incomplete"] and host["out_of_memory"] == 1
    assert host["moment"]["live_bytes"] == 30 * MIB
    assert pleat("summary", "--at", "oom", tmp_path / "t.trace").returncode == 0


def test_a_look_that_somebody_asked_for_is_found_again(library, tmp_path, pleat):  # noqa: F811
    script = "start(sys.argv[2])\nfirst = allocate(5)\ntell(69)\nfree(first)\nrecorder.stop()\nready()\n"
    with recording(library, tmp_path, script, tmp_path / "t.trace"):
        pass
    done = pleat("summary", "--json", "--at", "dump", tmp_path / "t.trace")
    assert json.loads(done.stdout)["devices"][0]["moment"]["live_bytes"] == 5


# ---- parts ---------------------------------------------------------------------------------------

PARTS = """
start(sys.argv[2], 1 << 19)
phase(0)
held = [allocate(1 << 20, "aten::empty", 0) for _ in range(3)]
import random
random.seed(1)
for step in range(1500):
    phase(1, step)
    for _ in range(20):
        free(allocate(random.randrange(1 << 40), address=random.getrandbits(64), key=random.getrandbits(64)))
    time.sleep(0.001)
recorder.stop()
ready()
"""


def test_the_summary_of_a_part_says_that_there_were_others(library, tmp_path, pleat):  # noqa: F811
    trace = tmp_path / "t.trace"
    with recording(library, tmp_path, PARTS, trace):
        pass
    former = tmp_path / "t.trace.1"
    assert trace.stat().st_size + former.stat().st_size <= 1 << 19
    summary = json.loads(pleat("summary", "--json", "--at", "end", trace).stdout)
    part = summary["process"]["part"]
    assert part >= 3 and summary["disagreements"] == 0
    moment = summary["devices"][0]["moment"]
    assert moment["live_bytes"] == 3 * MIB and moment["classes"]["inputs"] == 3 * MIB
    assert summary["devices"][0]["by_line"][0]["line"].startswith(str(tmp_path / "job.py:"))
    text = pleat("summary", trace).stdout.decode()
    assert f"part          {part}; before it t.trace.1, and what came before that is gone" in text
    assert f"part          {part - 1}; what came before it is gone" in pleat("summary", former).stdout.decode()
    (merged,) = json.loads(pleat("merge", "--json", trace, former).stdout)["ranks"]
    assert merged["parts"] == [str(former), str(trace)] and merged["faults"] == 0
    assert merged["devices"][0]["peak_live_bytes"] >= summary["devices"][0]["peak_live"]["bytes"]


def test_record_refuses_or_replaces_a_part_that_is_in_the_way(tmp_path, pleat):  # noqa: F811
    trace, former = tmp_path / "t.trace", tmp_path / "t.trace.1"

    def record(*options):
        return pleat("record", "-o", trace, *options, "--", "true")

    former.write_text("precious")
    done = record("--max-size", "1GiB")
    assert done.returncode == 2 and b"t.trace.1 exists; --force replaces it" in done.stderr
    done = record("--max-size", "1GiB", "--force")
    assert done.returncode == 2 and b"no file that can be replaced" in done.stderr
    assert former.read_text() == "precious"
    for odd in ("12", "1023KiB", "much"):
        done = record("--max-size", odd)
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1, done.stderr


@pytest.mark.parametrize("size", ["12", "1023KiB", "much"])
def test_a_size_that_is_refused_leaves_the_old_trace_where_it_is(tmp_path, pleat, size):  # noqa: F811
    trace = simple_trace(tmp_path / "t.trace", [(MIB, "aten::mul", "main", 1)])
    former = simple_trace(tmp_path / "t.trace.1", [(MIB, "aten::mul", "main", 1)])
    before = trace.read_bytes(), former.read_bytes()
    done = pleat("record", "--force", "--max-size", size, "-o", trace, "--", "true")
    assert done.returncode == 2 and b"of 1MiB at least" in done.stderr and done.stderr.count(b"\n") == 1
    assert (trace.read_bytes(), former.read_bytes()) == before
