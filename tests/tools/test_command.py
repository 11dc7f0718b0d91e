"""The `pleat` command: exit codes, the environment it sets, what the doctor says."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from conftest import clean_environment


@pytest.fixture(scope="session")
def environment():
    return clean_environment("LD_")


@pytest.fixture(scope="session")
def built(build_dir):
    for path in (build_dir / "bin" / "pleat", build_dir / "lib" / "libpleat.so"):
        if not path.exists():
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{path} is not built")
    return build_dir


@pytest.fixture
def prefix(built, tmp_path):
    """An installation of its own: bin/pleat, lib/libpleat.so, and a bridge's file name."""
    for name in ("bin/pleat", "lib/libpleat.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(built / name, tmp_path / name)
    (tmp_path / "lib" / "libpleat_bridge_torch2.11.so").touch()
    return tmp_path


@pytest.fixture
def pleat(prefix, environment):
    def call(*arguments, executable=prefix / "bin" / "pleat", errors="strict", **variables):
        return subprocess.run(
            [executable, *arguments],
            env=environment | {k: str(v) for k, v in variables.items()},
            capture_output=True,
            text=True,
            errors=errors,
            timeout=60,
        )

    return call


SHOW = ["sh", "-c", 'echo "$LD_PRELOAD|$PLEAT_CONF"']


# Exit codes.


def test_version_and_help(pleat):
    version = pleat("--version")
    assert version.returncode == 0 and re.fullmatch(r"pleat \d+\.\d+\.\d+\n", version.stdout)
    for arguments in (["--help"], ["run", "--help"], ["env", "-h"], ["doctor", "--help"]):
        done = pleat(*arguments)
        assert done.returncode == 0 and "Examples:" in done.stdout and done.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["run"],
        ["run", "--"],
        ["run", "--bits", "4"],
        ["run", "--bits"],
        ["run", "--nonsense", "--", "true"],
        ["run", "--bits", "9", "--", "true"],
        ["run", "--bits", "", "--", "true"],
        ["run", "--bits=4,when:release", "true"],
        ["run", "--bits=", "--seed", "4", "true"],
        ["run", "--when", "never", "--", "true"],
        ["run", "--place", "nowhere", "true"],
        ["run", "--min-bytes", "-1", "true"],
        ["run", "--seed", "x", "true"],
        ["run", "--verbose", "3", "true"],
        ["env", "--bits", "9"],
        ["env", "superfluous"],
        ["doctor", "--bits", "0.5"],
    ],
)
def test_wrong_usage_is_exit_code_2_and_starts_nothing(pleat, arguments):
    done = pleat(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("pleat: ")


def test_bad_flag_value_says_what_is_allowed(pleat):
    assert "off | lossless | 1..8" in pleat("run", "--bits", "9", "--", "true").stderr


@pytest.mark.parametrize("code", [0, 1, 2, 42, 126, 127, 255])
def test_exit_code_is_the_programs(pleat, code):
    assert pleat("run", "--", "sh", "-c", f"exit {code}").returncode == code


def test_program_that_cannot_start(pleat, tmp_path):
    absent = pleat("run", "--", str(tmp_path / "absent"))
    assert absent.returncode == 127 and "No such file" in absent.stderr
    assert pleat("run", "surely-not-a-program").returncode == 127
    (tmp_path / "data").write_text("#!/bin/sh\n")
    refused = pleat("run", "--", str(tmp_path / "data"))
    assert refused.returncode == 126 and "Permission denied" in refused.stderr
    assert pleat("run", "--", str(tmp_path)).returncode == 126


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_signals_reach_the_program(prefix, environment, number):
    def heed():  # a test run in the background ignores SIGINT, and so would its children
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)

    command = [prefix / "bin" / "pleat", "run", "--", "sleep", "60"]
    process = subprocess.Popen(command, env=environment, preexec_fn=heed)
    while open(f"/proc/{process.pid}/comm").read() != "sleep\n":
        pass
    process.send_signal(number)
    assert process.wait(timeout=20) == -number


def test_program_runs_in_the_same_process(prefix, environment):
    command = [prefix / "bin" / "pleat", "run", "sh", "-c", "echo $$"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=20)
    assert int(output) == process.pid


# The program's own arguments.


@pytest.mark.parametrize("separator", [["--"], []])
def test_arguments_of_the_program_are_left_alone(pleat, separator):
    mine = ["--bits", "9", "--", "--help", "", "a b", "*"]
    command = ["sh", "-c", 'for x; do echo "<$x>"; done', "sh", *mine]
    done = pleat("run", "--bits", "2", *separator, *command)
    assert done.stdout == "".join(f"<{x}>\n" for x in mine)
    assert (done.returncode, done.stderr) == (0, "")


# The environment.


def test_preload_is_ours_and_conf_is_absent_without_flags(pleat, prefix):
    done = pleat("run", *SHOW)
    assert (done.stdout, done.stderr) == (f"{prefix}/lib/libpleat.so|\n", "")


def test_flags_become_conf(pleat):
    flags = "--bits 2.5 --when forward_end --place=inplace --min-bytes 1M --seed 7 --verbose 1".split()
    conf = pleat("run", *flags, "--", *SHOW, PLEAT_CONF="").stdout.strip().split("|")[1]
    assert conf == "bits:2.5,when:forward_end,place:inplace,min_bytes:1M,seed:7,verbose:1"


@pytest.mark.parametrize(
    "before, flags, after",
    [
        ("bits:8", [], "bits:8"),
        ("bits:8,seed:3", ["--bits", "2"], "seed:3,bits:2"),
        (" bits : 99 , verbose:1,", ["--bits", "lossless"], " verbose:1,bits:lossless"),
        ("later_key:x", ["--seed", "1"], "later_key:x,seed:1"),
        ('later_key: "a,seed:2,b\\"" ,seed:3', ["--seed", "1"], 'later_key: "a,seed:2,b\\"" ,seed:1'),
        ('bits:"2,8",later_key:"x"', ["--bits", "3"], 'later_key:"x",bits:3'),
        ("", ["--min-bytes", " 64 KiB"], 'min_bytes:" 64 KiB"'),
        # What stands behind a quote that is not closed would be part of it.
        ('later_key:"/a,b,verbose:1', ["--bits", "3"], 'verbose:1,bits:3,later_key:"/a,b'),
        ('bits:"2,verbose:1', ["--bits", "3"], "verbose:1,bits:3"),
    ],
)
def test_flags_win_over_the_environment(pleat, before, flags, after):
    done = pleat("run", *flags, "--", *SHOW, PLEAT_CONF=before)
    assert done.stdout.rstrip("\n").split("|")[1] == after


@pytest.mark.parametrize(
    "before, after",
    [
        ("{lib}", "{ours}:{lib}"),
        ("{lib} {lib}:{lib}", "{ours}:{lib}"),
        ("{ours}", "{ours}"),
        ("{lib}:{ours}:{ours}", "{ours}:{lib}"),
        ("/elsewhere/libpleat.so:{lib}", "{ours}:{lib}"),
        ("{lib}:{folder}/libasan.so.8", "{folder}/libasan.so.8:{ours}:{lib}"),
        ("libfirst.so:libsecond.so", "{ours}:libfirst.so:libsecond.so"),
    ],
)
def test_preload_is_merged(pleat, prefix, before, after):
    names = {"lib": f"{prefix}/lib/libjemalloc.so.2", "folder": prefix, "ours": f"{prefix}/lib/libpleat.so"}
    line = pleat("env", LD_PRELOAD=before.format(**names)).stdout.splitlines()[0]
    assert line == "export LD_PRELOAD=" + after.format(**names)


def test_env_lines_have_the_effect_of_run(pleat, prefix, environment):
    lines = pleat("env", "--min-bytes", "64 KiB", "--bits", "3", PLEAT_CONF="seed:1").stdout
    script = f'{lines}\necho "$LD_PRELOAD|$PLEAT_CONF"'
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout == f"{prefix}/lib/libpleat.so|seed:1,min_bytes:64 KiB,bits:3\n"


@pytest.mark.parametrize(
    "conf",
    [
        "seed:'; echo caught #$(echo caught)`",
        'later_key:"/a b,c:\\"d\\\\",seed:1',
        "later_key:\"two\nlines\n\n\",seed:!1*?~${HOME}",
        "later_key:/caf\u00e9\t\x01\udcff,seed:1",
    ],
)
def test_env_quotes_for_the_shell(pleat, environment, conf):
    lines = pleat("env", PLEAT_CONF=conf, errors="surrogateescape").stdout
    script = 'eval "$LINES_OF_ENV"; printf %s "$PLEAT_CONF"'
    done = subprocess.run(["sh", "-c", script], env=environment | {"LINES_OF_ENV": lines}, capture_output=True)
    assert done.stdout == os.fsencode(conf)


def test_a_flag_takes_any_text_as_it_is(doctor):
    for text in ["-x", "--", "--json", "[a,b]", "a,bits:2", '"q', "two\nlines", " spaces ", "%s{}\\", "caf\u00e9"]:
        finding = findings(doctor("--python", text), "python")[0]["finding"]
        assert finding == f"{text} does not run"


# Where the library is.


def test_missing_library_is_said_before_anything_starts(pleat, prefix):
    (prefix / "lib" / "libpleat.so").unlink()
    for arguments in (["run", "--", "echo", "started"], ["env"]):
        done = pleat(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert "libpleat.so not found" in done.stderr and "setup.sh" in done.stderr
        assert done.stderr.count("\n") == 1


def test_no_bridge_is_said_before_the_program_runs_all_the_same(pleat, prefix):
    (prefix / "lib" / "libpleat_bridge_torch2.11.so").unlink()
    done = pleat("run", "--", "sh", "-c", "echo started >&2; exit 5")
    first, second = done.stderr.splitlines()
    assert first.startswith("pleat: no bridge") and "without Pleat" in first and "setup.sh" in first
    assert (done.returncode, second) == (5, "started")


@pytest.mark.parametrize(
    "folder", ["pleat/lib", "lib/python3.11/site-packages/pleat/lib", "lib64/python3.12/dist-packages/pleat/lib"]
)
def test_library_is_found_where_pip_puts_it(pleat, prefix, folder):
    (prefix / folder).mkdir(parents=True)
    for file in (prefix / "lib").glob("libpleat*"):
        file.rename(prefix / folder / file.name)
    assert pleat("run", *SHOW).stdout == f"{prefix}/{folder}/libpleat.so|\n"


def test_library_folder_can_be_named(pleat, prefix):
    elsewhere = prefix / "elsewhere"
    shutil.copytree(prefix / "lib", elsewhere)
    assert pleat("run", *SHOW, PLEAT_LIB_DIR=elsewhere).stdout == f"{elsewhere}/libpleat.so|\n"
    assert pleat("run", *SHOW, PLEAT_LIB_DIR=prefix / "absent").returncode == 1


def test_executable_behind_a_link_finds_its_library(pleat, prefix, tmp_path_factory):
    link = tmp_path_factory.mktemp("links") / "pleat"
    link.symlink_to(prefix / "bin" / "pleat")
    assert pleat("run", *SHOW, executable=link).stdout == f"{prefix}/lib/libpleat.so|\n"


def test_path_that_the_loader_cannot_take_is_refused(pleat, prefix):
    for name in ("with space", "with:colon"):
        shutil.copytree(prefix / "lib", prefix / name)
        done = pleat("run", *SHOW, PLEAT_LIB_DIR=prefix / name)
        assert (done.returncode, done.stdout) == (1, "") and "PLEAT_LIB_DIR" in done.stderr
        assert pleat("doctor", PLEAT_LIB_DIR=prefix / name).returncode == 1


# The doctor.


@pytest.fixture
def python_with_torch(prefix):
    """An interpreter whose path leads to a torch that says which version it is, and cannot be imported."""

    def make(version="2.11.0+cu130"):
        package = prefix / "packages" / "torch"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("raise SystemExit('imported')\n")
        (package / "version.py").write_text(f"from typing import Optional\n__version__ = '{version}'\n")
        python = prefix / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH={prefix}/packages exec {sys.executable} -S "$@"\n')
        python.chmod(0o755)
        return python

    return make


@pytest.fixture
def doctor(pleat):
    def call(*arguments, **variables):
        done = pleat("doctor", "--json", *arguments, **variables)
        report = json.loads(done.stdout)
        assert done.returncode == (0 if report["ok"] else 1), done.stdout
        assert done.stderr == ""
        return report

    return call


def findings(report, name):
    return [check for check in report["checks"] if check["name"] == name]


def test_doctor_says_that_it_would_work(doctor, pleat, prefix, python_with_torch):
    python = python_with_torch()
    report = doctor("--python", python)
    assert report["ok"] and not [c for c in report["checks"] if c["status"] == "broken"]
    assert report["library"] == f"{prefix}/lib/libpleat.so"
    assert report["bridges"] == ["2.11"] and report["torch"] == "2.11.0+cu130"
    assert report["torch_folder"] == f"{prefix}/packages/torch"
    assert {row["key"] for row in report["options"]} >= {"bits", "when", "place", "min_bytes", "seed", "verbose"}
    text = pleat("doctor", "--python", python)
    assert text.returncode == 0
    assert "libpleat_bridge_torch2.11.so" in text.stdout and "4 bits" in text.stdout


DRIVER = """
#include <stdio.h>
int cuInit(unsigned flags) { return FAILS; }
int cuDeviceGetCount(int* count) { *count = 2; return 0; }
int cuDeviceGetName(char* name, int room, int device) { snprintf(name, room, "Card %d", device); return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) { *value = attribute == 75 ? 9 : 0; return 0; }
"""


def test_doctor_says_what_becomes_of_cuda_tensors(doctor, prefix, python_with_torch, tmp_path):
    python = python_with_torch()
    assert findings(doctor("--python", python), "cuda") == [], "this torch is none for CUDA"
    libraries = prefix / "packages" / "torch" / "lib"
    libraries.mkdir()
    (libraries / "libc10_cuda.so").touch()
    (missing,) = findings(doctor("--python", python), "cuda")
    assert missing["status"] == "note" and "libpleat_cuda_torch2.11.so" in missing["finding"]
    (prefix / "lib" / "libpleat_cuda_torch2.11.so").touch()
    (off,) = findings(doctor("--python", python, PLEAT_CONF="cuda:0"), "cuda")
    assert "left to stock" in off["finding"]

    def with_driver(fails):
        (tmp_path / "driver.c").write_text(DRIVER.replace("FAILS", str(fails)))
        command = ["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"]
        subprocess.run(command, check=True)
        (found,) = findings(doctor("--python", python, LD_LIBRARY_PATH=str(tmp_path)), "cuda")
        return found

    found = with_driver(0)
    if "without kernels" in found["finding"]:
        assert found["status"] == "note"
        return
    assert found["status"] == "ok" and found["finding"] == "cuda:0 Card 0 (sm_90), cuda:1 Card 1 (sm_90)"
    broken = with_driver(999)
    assert broken["status"] == "note" and "error 999" in broken["finding"]


def test_doctor_reads_the_cpu_as_the_kernel_does(doctor):
    flags = re.search(r"^flags\s*:(.*)$", open("/proc/cpuinfo").read(), re.M)
    if flags is None:
        pytest.skip("no processor flags here")
    cpu = doctor()["cpu"]
    assert cpu["avx2"] == {"avx2", "fma"}.issubset(flags[1].split())
    assert cpu["avx512"] == {"avx512f", "avx512bw", "avx512vl", "avx512dq"}.issubset(flags[1].split())


@pytest.mark.parametrize(
    "version, works", [("2.11.3", True), ("2.12.0+cpu", False), ("2.15.0a0+git1", False), ("unknown", False)]
)
def test_doctor_compares_bridge_and_torch(doctor, python_with_torch, version, works):
    assert doctor("--python", python_with_torch(version))["ok"] == works


def test_doctor_without_torch_python_library_or_bridge(doctor, pleat, prefix, python_with_torch):
    python = python_with_torch()
    assert not doctor("--python", prefix / "absent")["ok"]
    bridge = prefix / "lib" / "libpleat_bridge_torch2.11.so"
    bridge.unlink()
    assert not doctor("--python", python)["ok"]
    bridge.touch()
    shutil.rmtree(prefix / "packages")
    report = doctor("--python", python)
    assert not report["ok"] and findings(report, "torch")[0]["remedy"]
    (prefix / "lib" / "libpleat.so").unlink()
    text = pleat("doctor", "--python", python)
    assert text.returncode == 1 and "refuse to start" in text.stdout


def test_doctor_shows_options_in_force_and_problems(doctor, python_with_torch):
    report = doctor("--python", python_with_torch(), "--seed", "5", PLEAT_CONF="bits:lossless,verbose:9,bitz:1")
    values = {row["key"]: row["value"] for row in report["options"]}
    assert (values["bits"], values["seed"], values["verbose"]) == ("lossless", "5", "0")
    problems = [check["finding"] for check in findings(report, "PLEAT_CONF")]
    assert problems[0] == "verbose:9: allowed are 0..1; using 0"
    assert problems[1].startswith("bitz:1: no such key")
    quoted = doctor("--min-bytes", " 1 MiB", PLEAT_CONF='bits:"2,seed:5')
    values = {row["key"]: row["value"] for row in quoted["options"]}
    assert (values["bits"], values["seed"], values["min_bytes"]) == ("4", "5", "1MiB")
    assert [check["finding"] for check in findings(quoted, "PLEAT_CONF")] == ['bits:"2: the quote is not closed; using 4']
    assert report["ok"]  # a mistake in PLEAT_CONF costs its key, not Pleat


def test_doctor_sees_switches_and_conflicts(doctor, prefix, python_with_torch):
    python = python_with_torch()
    assert not doctor("--python", python, PLEAT_DISABLE="1")["ok"]
    assert doctor("--python", python, PLEAT_DISABLE="0")["ok"]
    assert not doctor("--python", python, PLEAT_BRIDGE=prefix / "absent.so")["ok"]
    stubs = prefix / "cuda" / "stubs"
    stubs.mkdir(parents=True)
    (stubs / "libcuda.so").touch()
    report = doctor("--python", python, LD_LIBRARY_PATH=f"{prefix}:{stubs}/:")
    assert "stub libcuda" in findings(report, "LD_LIBRARY_PATH")[0]["remedy"] and report["ok"]


def test_doctor_judges_preload_entries(prefix, doctor, python_with_torch, build_dir):
    other = prefix / "libtcmalloc.so.4"
    shutil.copy(prefix / "lib" / "libpleat.so", other)  # anything loadable
    report = doctor("--python", python_with_torch(), LD_PRELOAD=f"{prefix}/lib/libpleat.so:{other}")
    ours, malloc = findings(report, "LD_PRELOAD")
    assert (ours["status"], malloc["status"]) == ("ok", "ok")
    assert report["ok"]


def test_doctor_respects_the_address_space_limit(prefix, environment):
    command = f"ulimit -v 8000000; exec {prefix}/bin/pleat doctor --json"
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True)
    assert json.loads(done.stdout)["address_space_limit_bytes"] == 8000000 * 1024
