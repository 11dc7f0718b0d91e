"""libpleat.so in processes that never load torch: nothing to see, nothing to pay."""

import os
import re
import shutil
import statistics
import subprocess
import sys
import time

import pytest

from hook_list import HOOKS, SET_ENGINE_STUB

pytest_plugins = ("stand_in",)

PROGRAMS = {
    "true": ["true"],
    "bash": ["bash", "-c", "echo out; echo err >&2; exit 3"],
    "python": [sys.executable, "-I", "-S", "-c", "pass"],
}


def preloaded(environment, library):
    return environment | {"LD_PRELOAD": str(library)}


# ELF facts.


def dynamic_section(library):
    return subprocess.run(["readelf", "-dW", library], capture_output=True, text=True, check=True).stdout


def names_defined_in(library):
    command = ["nm", "-D", "--defined-only", library]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(line.split()[-1] for line in lines)


def test_exports_are_the_rows_of_the_one_list_and_the_two_entrances(libpleat):
    exported = names_defined_in(libpleat)
    assert exported == sorted([name for *_, name in HOOKS] + [SET_ENGINE_STUB, "__libc_start_main"])
    # No version node: a node of our own would keep torch's references from binding to us.
    assert not any("@" in name for name in exported)


@pytest.mark.smoke
def test_every_row_names_a_function_of_torch(test_python):
    find = "import importlib.util; print(*importlib.util.find_spec('torch').submodule_search_locations)"
    torch = subprocess.run([test_python, "-c", find], capture_output=True, text=True, check=True).stdout.strip()
    defined = set(names_defined_in(f"{torch}/lib/libtorch_cpu.so"))
    found = {member for _, member, name in HOOKS if name in defined}
    assert {member for _, member, _ in HOOKS} - found == set()
    assert SET_ENGINE_STUB in defined


def test_needs_libc_only_and_binds_at_once(libpleat):
    section = dynamic_section(libpleat)
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", section))
    assert needed - {"libdl.so.2"} == {"libc.so.6"}  # libdl: part of libc since 2.34
    assert "BIND_NOW" in section
    assert not re.search(r"RPATH|RUNPATH|TEXTREL", section)
    segments = subprocess.run(["readelf", "-lW", libpleat], capture_output=True, text=True).stdout
    assert "GNU_RELRO" in segments
    assert re.search(r"GNU_STACK.*RW ", segments)


# Behaviour.


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_hundred_runs_give_the_same_output_and_exit_code(name, libpleat, bare_environment):
    command = PROGRAMS[name]

    def run(environment):
        done = subprocess.run(command, env=environment, capture_output=True)
        return done.returncode, done.stdout, done.stderr

    stock = run(bare_environment)
    for _ in range(200):
        assert run(preloaded(bare_environment, libpleat)) == stock


def test_start_up_costs_less_than_a_millisecond(libpleat, bare_environment):
    command = shutil.which("true")

    def seconds(environment):
        begin = time.perf_counter()
        process = os.posix_spawn(command, [command], environment)
        os.waitpid(process, 0)
        return time.perf_counter() - begin

    ours = preloaded(bare_environment, libpleat)
    differences = [seconds(ours) - seconds(bare_environment) for _ in range(300)]
    assert statistics.median(differences) < 1e-3


def system_calls(command, environment, folder):
    log = folder / "strace.log"
    done = subprocess.run(
        ["strace", "-f", "-qq", "-o", log, *[f"-E{k}={v}" for k, v in environment.items()], *command],
        capture_output=True,
    )
    text = log.read_text() if log.exists() else ""
    if done.returncode != 0 or "exit_group" not in text:
        pytest.skip("strace cannot trace here")
    calls = [line.split(" ", 1)[1].strip() for line in text.splitlines() if "exited with" not in line]
    return [call for call in calls if "resumed>" not in call]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_no_file_thread_or_output_of_our_own(libpleat, tmp_path, bare_environment):
    command = [shutil.which("true")]
    watched = re.compile(r"^(open|openat|creat|clone\w*|fork|vfork|write\w*|socket|connect|pipe\w*|memfd\w*)\(")

    def effects(environment):
        return [
            re.sub(r"0x[0-9a-f]+", "ADDRESS", call)
            for call in system_calls(command, environment, tmp_path)
            if watched.match(call) and "libpleat.so" not in call and "ld.so.preload" not in call
        ]

    assert effects({"LD_PRELOAD": str(libpleat)}) == effects({})


def test_program_that_wraps_main_itself_still_starts(
    libpleat, tmp_path, bare_environment, build_library
):
    """Another preload library with a wrapper of __libc_start_main, before and behind ours."""
    source = r"""
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <unistd.h>
    int __libc_start_main(void* m, int c, void* v, void* i, void* f, void* r, void* s) {
      int (*next)(void*, int, void*, void*, void*, void*, void*) = dlsym(RTLD_NEXT, "__libc_start_main");
      if (write(1, "other\n", 6) != 6) return 9;
      return next(m, c, v, i, f, r, s);
    }"""
    other = tmp_path / "libother.so"
    build_library(source, other)
    for preload in (f"{libpleat}:{other}", f"{other}:{libpleat}"):
        environment = bare_environment | {"LD_PRELOAD": preload}
        done = subprocess.run(["echo", "main"], env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "other\nmain\n", "")


def test_children_inherit_and_fork_works(libpleat, bare_environment):
    script = "bash -c 'echo $LD_PRELOAD' & wait; (echo fork); exec echo exec"
    environment = preloaded(bare_environment, libpleat)
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{libpleat}\nfork\nexec\n", "")


@pytest.mark.smoke
def test_real_torch_without_a_bridge_is_stock(libpleat, tmp_path, test_python, bare_environment):
    """Every interposed function resolved against the real libtorch_cpu.so."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "torch.manual_seed(0)\n"
        "x = torch.randn(64, 64, requires_grad=True)\n"
        "y = x.exp()\n"
        "y.grad_fn._raw_saved_result.register_hooks(lambda t: t * 2, lambda t: t)\n"
        "(y * x.tanh()).sum().backward()\n"
        "print(x.grad.double().sum().item(), x.grad.double().norm().item())\n"
    )
    lonely = tmp_path / "libpleat.so"
    shutil.copy(libpleat, lonely)
    command = [test_python, script]
    environment = bare_environment | {"OMP_NUM_THREADS": "1"}
    stock = subprocess.run(command, env=environment, capture_output=True, text=True)
    ours = subprocess.run(
        command, env=preloaded(environment, lonely), capture_output=True, text=True
    )
    assert stock.returncode == 0, stock.stderr
    assert (ours.returncode, ours.stdout) == (0, stock.stdout)
    extra = ours.stderr.removeprefix(stock.stderr)
    assert extra.startswith("pleat: no bridge for torch ") and extra.count("\n") == 1
