"""Completion for bash and man pages: made of the command line itself, so they know all of it."""

import re
import shutil
import subprocess

import pytest

from conftest import REPOSITORY, clean_environment


@pytest.fixture(scope="session")
def program(command):
    return command


@pytest.fixture(scope="session")
def script(program, tmp_path_factory):
    done = subprocess.run([program, "completion", "bash"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    path = tmp_path_factory.mktemp("completion") / "pleat"
    path.write_text(done.stdout)
    return path


@pytest.fixture(scope="session")
def complete(script, tmp_path_factory):
    """What a shell offers for the last of the words, where bash has split them."""
    folder = tmp_path_factory.mktemp("folder")

    def complete(*words, prepare=""):
        lines = f"""{prepare}
            source {script}
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _pleat
            ((${{#COMPREPLY[@]}})) && printf '%s\\n' "${{COMPREPLY[@]}}"
            exit 0"""
        command = ["bash", "--norc", "-u", "-c", lines, "bash", "pleat", *words]
        done = subprocess.run(command, env=clean_environment(), cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return done.stdout.splitlines()

    return complete


def help_of(program, *command):
    return subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=True).stdout


def subcommands(program, *command):
    below = re.search(r"\nSubcommands:\n((?: .*\n)+)", help_of(program, *command))
    names = re.findall(r"^  ([a-z-]+) ", below[1], re.M) if below else []
    return [(*command, name) for name in names]


def all_commands(program):
    found = [()]
    for command in found:
        found += subcommands(program, *command)
    return found


def test_subcommands_and_options_are_those_of_the_help(program, complete):
    commands = all_commands(program)
    assert ("trace", "summary") in commands and ("completion", "bash") in commands
    for command in commands:
        options = re.findall(r"^  (?:(-\w),)?(--[a-z-]+)", help_of(program, *command), re.M)
        offered = complete(*command, "-")
        assert sorted(offered) == sorted(name for pair in options for name in pair if name)
        names = [below[-1] for below in subcommands(program, *command)]
        if command not in {("run",), ("check",), ("trace", "record")}:
            assert complete(*command, "") == names


def test_what_is_typed_bounds_what_is_offered(complete):
    assert complete("t") == ["trace"]
    assert complete("trace", "s") == ["summary"]
    assert complete("trace", "summary", "--max-") == ["--max-peak", "--max-growth", "--max-events"]
    assert complete("trace", "nonsense", "--nonsense") == []


@pytest.mark.parametrize(
    "words, offered",
    [
        (["trace", "summary", "--at", ""], ["peak", "end", "oom", "dump"]),
        (["trace", "summary", "--json", "--at", "e"], ["end"]),
        (["trace", "summary", "--at", "="], ["peak", "end", "oom", "dump"]),  # bash splits at "="
        (["trace", "summary", "--at", "=", "o"], ["oom"]),
        (["trace", "summary", "--at=o"], ["--at=oom"]),  # unless it is told not to
        (["trace", "export", "--to", "torch"], ["torch-snapshot.pickle", "torch-snapshot.json"]),
        (["trace", "export", "-o", "x", "--to", "c"], ["collapsed", "csv"]),
        (["trace", "summary", "--class", "saved"], [r"saved\ raw"]),
        (["trace", "summary", "--class", r"saved\ r"], [r"saved\ raw"]),
        (["trace", "summary", "--class", '"saved r'], ["saved raw"]),
        (["profile", "show", "--sort", "se"], ["sensitivity"]),
        (["run", "--bits", "l"], ["lossless"]),
        (["run", "--stacks", "n"], ["native", "none"]),
        (["trace", "record", "--when", ""], ["release", "forward_end"]),
        (["trace", "summary", "--top", ""], []),  # files, as bash does by itself
        (["trace", "summary", ""], []),
        (["trace", "diff", "a.trace", ""], []),
        (["trace", "diff", "a.trace", "--max-g"], ["--max-growth"]),
    ],
)
def test_values(complete, words, offered):
    assert complete(*words) == offered


@pytest.mark.parametrize("runs", [["run"], ["check"], ["trace", "record"]])
def test_behind_the_options_a_program_is_completed(complete, runs):
    assert "bash" in complete(*runs, "bas")
    assert "bash" in complete(*runs, "--bits", "4", "--", "bas")
    assert complete(*runs, "--", "bash", "--bits", "l") == []  # the program's own words
    offset = "_command_offset() { COMPREPLY=(\"offset $1\"); }"
    words = [*runs, "--bits", "=", "4", "--verbose", "1"]
    assert complete(*words, "bash", "--no", prepare=offset) == [f"offset {len(words) + 1}"]
    assert complete(*words, "--", "bash", "--no", prepare=offset) == [f"offset {len(words) + 2}"]


def test_the_script_is_sound_and_says_how_it_gets_there(program, script):
    assert subprocess.run(["bash", "-n", script]).returncode == 0
    assert "bash-completion/completions/pleat" in help_of(program, "completion", "bash")
    registered = subprocess.run(["bash", "--norc", "-c", f"source {script}; complete -p pleat"], capture_output=True, text=True)
    assert registered.stdout == "complete -o bashdefault -o default -F _pleat pleat\n"


# ---- man pages -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def share(program, tmp_path_factory):
    help2man = shutil.which("help2man")
    if help2man is None:
        pytest.skip("help2man is missing")
    folder = tmp_path_factory.mktemp("share")
    command = ["cmake", f"-DPLEAT={program}", f"-DHELP2MAN={help2man}", "-DVERSION=1.2.3", f"-DFOLDER={folder}"]
    done = subprocess.run([*command, "-P", REPOSITORY / "tools" / "packaging" / "pages.cmake"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return folder


def test_every_command_has_a_man_page(program, share, script):
    pages = {path.name: path.read_text() for path in (share / "man" / "man1").iterdir()}
    assert set(pages) == {"-".join(["pleat", *command]) + ".1" for command in all_commands(program)}
    diff = pages["pleat-trace-diff.1"]
    assert re.search(r'^\.TH PLEAT-TRACE-DIFF "1" ".*" "pleat 1\.2\.3"', diff, re.M)
    assert r".SH NAME" "\n" r"pleat\-trace\-diff \- Say what grew and what shrank" in diff
    assert "\n.nf\npleat trace diff before.trace after.trace\n" in diff
    assert ".BR pleat-trace (1)" in diff and ".BR pleat-trace-diff (1)" in pages["pleat-trace.1"]
    assert "pleat\\-run \\- Run a program under Pleat, in this very process\n" in pages["pleat-run.1"]
    assert (share / "bash-completion" / "completions" / "pleat").read_text() == script.read_text()


def test_a_program_that_does_not_run_here_breaks_no_build(tmp_path):
    command = ["cmake", "-DPLEAT=/bin/false", "-DHELP2MAN=/bin/false", "-DVERSION=1", f"-DFOLDER={tmp_path}"]
    done = subprocess.run([*command, "-P", REPOSITORY / "tools" / "packaging" / "pages.cmake"], capture_output=True, text=True)
    assert done.returncode == 0 and "does not run here" in done.stderr
    assert not list(tmp_path.rglob("*"))
