"""What libpleat.so does when torch is loaded, on a torch that is a few lines of C (fake_torch.c)."""

import os
import pathlib
import shutil
import subprocess

import pytest

from hook_list import HOOKS

pytest_plugins = ("stand_in",)

# What fake_torch.c passes and sums up, worked out here once more: each argument times its position.
INTEGERS = [1, 20, 300, 4000, 50000, 600000, 7000000, 80000000]
FLOATS = [0.5, 0.25, 0.125, 0.0625, 3, 5, 7, 11]
SUM = sum((i + 1) * x for values in (INTEGERS, FLOATS) for i, x in enumerate(values))
SUMS = [(i + 1) * SUM for i in range(len(HOOKS))]
# Both names of a function lead to what the bridge gives for the first it is found by, as its row's sum shows.
ROW_OF = {member: i for i, (kind, member, _) in enumerate(HOOKS) if kind != "OTHER_NAME"}
LEFT_AS_IT_IS = "saved_variable_register_hooks"


def printed(sums):
    names = ["OTHER_" * (kind == "OTHER_NAME") + member for kind, member, _ in HOOKS]
    return "".join(f"{name} {value:.4f}\n" for name, value in zip(names, sums, strict=True))


STOCK_SUMS = printed(SUMS)
BRIDGE_SUMS = printed([SUMS[ROW_OF[member]] * (1 if member == LEFT_AS_IT_IS else -1) for _, member, _ in HOOKS])
STOCK = "secure 0\nengine python\n" + STOCK_SUMS
BRIDGED = "secure 0\nengine bridge over python\n" + BRIDGE_SUMS


def one_line(stderr, *parts):
    lines = stderr.splitlines()
    assert len(lines) == 1, stderr
    assert lines[0].startswith("pleat: ") and lines[0].endswith("running without Pleat"), stderr
    for part in parts:
        assert part in lines[0]


def stays_out(result, *parts):
    """The program ran as if we were not there; one line says why."""
    assert (result.returncode, result.stdout) == (42, STOCK)
    one_line(result.stderr, *parts)


def takes_part(result, output=BRIDGED):
    assert (result.returncode, result.stdout) == (42, output)
    assert result.stderr == "bridge: interposed 1 stub 1 set 1\n"


def test_stand_in_without_preload_is_the_reference(fake_torch):
    result = fake_torch.run(preload=False)
    assert (result.returncode, result.stdout, result.stderr) == (42, STOCK, "")


def test_bridge_of_this_torch_takes_part(fake_torch):
    fake_torch.bridge()
    takes_part(fake_torch.run())


def test_without_a_bridge_calls_reach_torch_with_all_arguments(fake_torch):
    fake_torch.bridge("2.12")
    stays_out(fake_torch.run(), "no bridge for torch 2.11", "libpleat_bridge_torch2.11.so")


@pytest.mark.parametrize(
    "file, text, bridge",
    [
        ("version.py", "__version__ = '2.11.1'\n", "2.11"),
        ("version.py", '# c\n\n__version__: str = "2.15.0a0+git1234"\n', "2.15"),
        ("build-version", "2.11.0+cpu\n", "2.11"),
        ("build-version", "2.15.0", "2.15"),
    ],
)
def test_version_is_read_where_torch_keeps_it(fake_torch, file, text, bridge):
    fake_torch.version(text, file)
    fake_torch.bridge(bridge)
    takes_part(fake_torch.run())


@pytest.mark.parametrize("text", ["", "__version__ = unknown\n", "x" * 100000, "__version__\n'2.11'"])
def test_unreadable_version_stays_out(fake_torch, text):
    fake_torch.version(text)
    fake_torch.bridge()
    stays_out(fake_torch.run(), "cannot tell the version")


def test_torch_beside_its_extension_module_when_libraries_live_elsewhere(fake_torch, build_library):
    package = fake_torch.folder / "site-packages" / "torch"
    package.mkdir(parents=True)
    shutil.move(fake_torch.folder / "torch" / "version.py", package)
    extension = package / "_C.cpython-311-x86_64-linux-gnu.so"
    source = "extern void import_torch(void); void call_it(void) { import_torch(); }"
    build_library(source, extension, fake_torch.libraries / "libtorch_python.so")
    fake_torch.bridge()
    environment = fake_torch.environment | {
        "LD_PRELOAD": str(fake_torch.pleat),
        "LD_LIBRARY_PATH": str(fake_torch.libraries),
    }
    command = [fake_torch.folder / "host", extension]
    takes_part(subprocess.run(command, env=environment, capture_output=True, text=True))


def test_bridge_that_refuses_leaves_no_trace(fake_torch):
    fake_torch.bridge()
    result = fake_torch.run(FAKE_BRIDGE="refuse")
    assert (result.returncode, result.stdout, result.stderr) == (42, STOCK, "")


@pytest.mark.parametrize("mode", ["abi", "size"])
def test_bridge_of_another_abi_stays_out(fake_torch, mode):
    fake_torch.bridge()
    result = fake_torch.run(FAKE_BRIDGE=mode)
    assert (result.returncode, result.stdout) == (42, STOCK)
    one_line(result.stderr.split("\n", 1)[1], "ABI")


def test_file_that_is_no_bridge_stays_out(fake_torch):
    shutil.copy(fake_torch.libraries / "libtorch_cpu.so", fake_torch.bridge())
    stays_out(fake_torch.run(), "is not a bridge")
    fake_torch.bridge().write_bytes(b"not an ELF file\n" * 100)
    stays_out(fake_torch.run(), "cannot load the bridge")


def test_bridge_with_a_missing_symbol_stays_out(fake_torch, build_library):
    source = "extern int nowhere(void); int pleat_bridge_install(void) { return nowhere(); }"
    build_library(source, fake_torch.bridge())
    stays_out(fake_torch.run(), "cannot load the bridge", "nowhere")


def test_bridge_built_for_another_torch_stays_out_whatever_its_name(fake_torch):
    fake_torch.version("2.11.0")
    fake_torch.bridge()
    takes_part(fake_torch.run(FAKE_BUILT_FOR="2.11.3+cpu"))
    for built in ("2.12.0", "3.11.0", "nonsense"):
        stays_out(fake_torch.run(FAKE_BUILT_FOR=built), f"was built for torch {built}, this is torch 2.11")


def test_bridge_may_call_the_interposed_function_itself(fake_torch):
    fake_torch.bridge()
    takes_part(fake_torch.run(FAKE_BRIDGE="recurse"))


def test_second_call_passes_through_the_bridge(fake_torch):
    fake_torch.bridge()
    result = fake_torch.run(FAKE_SECOND_CALL="1")
    assert result.stdout == BRIDGED + "engine bridge over python again\n" + BRIDGE_SUMS


def test_second_call_after_staying_out_says_nothing_more(fake_torch):
    result = fake_torch.run(FAKE_SECOND_CALL="1")
    assert result.stdout == STOCK + "engine python again\n" + STOCK_SUMS
    one_line(result.stderr)


@pytest.mark.parametrize("value, out", [("1", True), ("yes", True), ("0", False), ("", False)])
def test_switch(fake_torch, value, out):
    fake_torch.bridge()
    result = fake_torch.run(PLEAT_DISABLE=value)
    if out:
        assert (result.returncode, result.stdout, result.stderr) == (42, STOCK, "")
    else:
        takes_part(result)


def test_bridge_named_for_development(fake_torch):
    takes_part(fake_torch.run(PLEAT_BRIDGE=str(fake_torch.folder / "bridge.so")))
    stays_out(fake_torch.run(PLEAT_BRIDGE=str(fake_torch.folder / "absent.so")), "absent.so")
    stays_out(fake_torch.run(PLEAT_BRIDGE="/" + "x" * 70000), "PLEAT_BRIDGE")


def test_relative_preload_path_survives_a_change_of_directory(fake_torch):
    fake_torch.bridge()
    options = {"cwd": fake_torch.folder}
    takes_part(fake_torch.run("./pleat/libpleat.so", arguments=["/"], options=options))


def test_link_to_the_library_finds_the_bridge_beside_its_target(fake_torch):
    fake_torch.bridge()
    link = fake_torch.folder / "link.so"
    link.symlink_to(fake_torch.pleat)
    takes_part(fake_torch.run(link))


def test_torch_inside_another_library_is_found_by_its_symbols(fake_torch):
    environment = fake_torch.environment | {"LD_PRELOAD": str(fake_torch.pleat)}
    command = [fake_torch.folder / "host", fake_torch.libraries / "libeverything.so"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    stays_out(result, "cannot tell the version")


def test_closed_stderr_does_no_harm(fake_torch):
    command = f'"{fake_torch.folder}/host" "{fake_torch.libraries}/libtorch_python.so" 2>&-'
    environment = fake_torch.environment | {"LD_PRELOAD": str(fake_torch.pleat)}
    result = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (42, STOCK)


# Programs linked to LibTorch.


def test_libtorch_program_is_served_before_main(fake_torch):
    fake_torch.bridge()
    result = fake_torch.run_program()
    assert (result.returncode, result.stdout) == (43, "engine bridge over default\n" + BRIDGE_SUMS)
    assert result.stderr == "bridge: interposed 1 stub 0 set 1\n"


def test_libtorch_program_without_a_bridge_runs_as_stock(fake_torch):
    result = fake_torch.run_program()
    assert (result.returncode, result.stdout) == (43, "engine base\n" + STOCK_SUMS)
    one_line(result.stderr, "no bridge for torch 2.11")
    result = fake_torch.run_program(PLEAT_DISABLE="1")
    assert (result.stdout, result.stderr) == ("engine base\n" + STOCK_SUMS, "")


# Set-uid.


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a set-uid program")
def test_set_uid_program_is_left_alone(fake_torch):
    """The loader drops our LD_PRELOAD entry there, so the program names us itself."""
    fake_torch.bridge()
    host = fake_torch.folder / "set_uid_host"
    source = pathlib.Path(__file__).with_name("fake_torch.c")
    include = source.parents[2]
    command = ["gcc", "-DFAKE_HOST", f"-I{include}", str(source), "-o", str(host)]
    command += ["-Wl,--no-as-needed", str(fake_torch.pleat), f"-Wl,-rpath,{fake_torch.pleat.parent}"]
    subprocess.run(command, check=True)
    host.chmod(0o4755)
    result = subprocess.run(
        [host, fake_torch.libraries / "libtorch_python.so"],
        env=fake_torch.environment | {"PLEAT_BRIDGE": str(fake_torch.folder / "bridge.so")},
        capture_output=True,
        text=True,
        user=65534,
    )
    if "secure 1" not in result.stdout:
        pytest.skip("set-uid bits have no effect on this file system")
    assert (result.returncode, result.stderr) == (42, "")
    assert result.stdout == STOCK.replace("secure 0", "secure 1")
