"""docs/architecture.md names each variable of the process and of each thread, with its rule at fork. The built libraries
are the measure: variables of namespace pleat in writable sections, which outlive a call."""

import collections
import re
import subprocess

import pytest

from conftest import REPOSITORY, STOCK_ONLY

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")

SECTIONS = {".bss": "process", ".data": "process", ".tbss": "thread", ".tdata": "thread"}
# Guards of local statics, constant tables, and the sites that each formula of PLEAT_HOOKS has.
LEFT_OUT = re.compile(r"^guard variable|\bk[A-Z]\w*$|^bridge::Formula<|kernel_name\(\)::names$")

MOST = {"process": 30, "thread": 10}  # state of one feature is one object


def plain(name):
    """`bridge::installation()::one` of "pleat::bridge::(anonymous namespace)::installation()::one"."""
    name = name.replace("(anonymous namespace)::", "")
    while (shorter := re.sub(r"\((?:[^()]|\(\))+\)", "()", name)) != name:
        name = shorter
    return re.sub(r"\(\)(?: const)?\[?.*?::(?=\w+$)", "()::", name.removeprefix("pleat::"))


def variables_of(library):
    """{"process": names, "thread": names} with how often each name is there."""
    found = {"process": collections.Counter(), "thread": collections.Counter()}
    printed = subprocess.run(["objdump", "-tC", library], capture_output=True, text=True, check=True).stdout
    for section, name in re.findall(r"^[0-9a-f]+ .{7} (\.\w+)\t[0-9a-f]+ +(?:\.hidden )?(.+)$", printed, re.M):
        if section in SECTIONS and "pleat::" in name and not LEFT_OUT.search(plain(name)):
            found[SECTIONS[section]][plain(name)] += 1
    return found


@pytest.fixture(scope="module")
def built(preload_library, torch_version):
    """The variables of the bridge and, where torch has CUDA, of its CUDA library. Both link the codec: a name counts once."""
    version = ".".join(torch_version.split(".")[:2])
    libraries = [preload_library.with_name(f"libpleat_{part}_torch{version}.so") for part in ("bridge", "cuda")]
    found = [variables_of(library) for library in libraries if library.exists()]
    return {kind: found[0][kind] | found[-1][kind] for kind in ("process", "thread")} | {"cuda": len(found) == 2}


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_the_page_of_the_architecture_names_every_variable(built, kind):
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    (table,) = re.findall(rf"^\| variable of (?:the|each) {kind} \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.M)
    names = [name for row in table.splitlines() for name in re.findall("`([^`]+)`", row.split("|")[1])]
    listed = collections.Counter(name for name in names if built["cuda"] or "::cuda::" not in name)
    assert sorted((built[kind] - listed).elements()) == [], "unlisted: add its row, with its rule at fork"
    assert sorted((listed - built[kind]).elements()) == [], "gone: remove its row"


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_variables_are_few(built, kind):
    assert built[kind].total() <= MOST[kind], "the state of one feature is one object with one rule at fork"
