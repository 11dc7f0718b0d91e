"""The Python package as `pip install` lays it out: pleat/ with its libraries in pleat/lib, and the entry
point in the metadata; and the lines its build backend ends with where it cannot build."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from conftest import REPOSITORY, STOCK_ONLY, clean_environment

pytestmark = pytest.mark.skipif(STOCK_ONLY, reason="needs Pleat")

PROJECT = (REPOSITORY / "pyproject.toml").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory, preload_library):
    """A folder of packages that holds what the wheel holds, its metadata taken from pyproject.toml."""
    folder = tmp_path_factory.mktemp("site")
    package = re.search(r'^wheel\.packages = \["(.+)"\]', PROJECT, re.M)[1]
    shutil.copytree(REPOSITORY / package, folder / "pleat", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pleat" / "lib").mkdir()
    for library in preload_library.parent.glob("libpleat*.so"):
        shutil.copy(library, folder / "pleat" / "lib")
    information = folder / "pleat-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: pleat\nVersion: 0.1.0\n")
    group, entry = re.search(r'^\[project\.entry-points\."(.+)"\]\npleat = "(.+)"', PROJECT, re.M).groups()
    (information / "entry_points.txt").write_text(f"[{group}]\npleat = {entry}\n")
    return folder


@pytest.fixture
def python(test_python, site, tmp_path):
    def call(source, *arguments, packages=site, **variables):
        return subprocess.run(
            [str(test_python), "-c", source, *arguments],
            env=clean_environment("LD_") | {"PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"} | variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
        )

    return call


@pytest.fixture(scope="module")
def package():
    """The package's code, without torch."""
    path = REPOSITORY / "torch_bridge" / "python" / "pleat" / "__init__.py"
    specification = importlib.util.spec_from_file_location("pleat_without_torch", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


STEP = """
first, last = torch.nn.Linear(400, 400), torch.nn.Linear(400, 10)
def step():
    h = first(torch.linspace(-1, 1, 300 * 400).reshape(300, 400))
    torch.nn.functional.cross_entropy(last(h.sigmoid() * h.tanh()), torch.arange(300) % 10).backward()
    return pleat.stats().get("records", {}).get("encoded", 0)
"""


KEEPS = """
class Dot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x * w).sum()
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return w, x
def unharmed(*shape):
    x = torch.randn(*shape, requires_grad=True)
    w = torch.nn.Parameter(torch.randn(*shape))
    b = torch.randn(*shape)
    before = w.detach().clone(), b.clone()
    (Dot.apply(x, w) + Dot.apply(x, b) + Dot.apply(w, b)).backward()
    x.grad.zero_()
    w.grad.zero_()
    return torch.equal(w, before[0]) and torch.equal(b, before[1])
"""


def test_a_gradient_returned_by_a_function_shares_no_bytes_with_what_it_saved(python):
    done = python(
        "import torch, pleat\npleat.enable()\n" + KEEPS + "print(unharmed(8, 8), unharmed(300, 400))"
    )
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_enable_disable_and_exempt_in_a_script(python):
    done = python(
        "import json, torch, pleat\n" + STEP + "counts = [step()]\n"
        "assert not pleat.is_enabled() and pleat.stats() == {} and 'not installed' in pleat.report()\n"
        "pleat.enable(bits=4, min_bytes='4KiB'); counts.append(step()); assert pleat.is_enabled()\n"
        "with pleat.exempt(): counts.append(step())\n"
        "pleat.disable(); counts.append(step()); assert not pleat.is_enabled()\n"
        "pleat.enable(when='forward_end'); counts.append(step())\n"
        "options = pleat.stats()['options']\n"
        "print(json.dumps([counts, options['bits'], options['min_bytes'], options['when'], pleat.report()]))\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    (never, on, exempt, off, again), bits, min_bytes, when, report = json.loads(done.stdout)
    assert never == 0 < on == exempt == off < again
    assert (bits, min_bytes, when) == ("4", "4KiB", "forward_end")
    assert "4 backward passes" in report  # of the five steps, one was before


def test_a_bad_option_is_an_error_and_changes_nothing(python):
    calls = {
        "bits=99": "bits:99: allowed are off, lossless or 1..8",
        "bitz=4": "bitz:4: no such key",
        "rule='assumed'": "rule:assumed: no such key",
        "sensitivity='exact'": "sensitivity:exact: allowed are off or on; using off",
        "bits='4,when:forward_end'": 'bits:"4,when:forward_end": allowed are off, lossless or 1..8',
        "bits=':4'": "bits::4: allowed",
        "bits='\"4\\\\'": 'bits:"\\"4\\\\": allowed',
        "bits=pathlib.Path('/a b,c')": 'bits:"/a b,c": allowed',
        "bits='4\\0'": "may not hold a NUL",
        "**{'bits:2,seed': 4}": "no such key",
    }
    done = python(
        "import pathlib, torch, pleat\n" + STEP + "pleat.enable(bits=8)\n"
        + "".join(
            f"try: pleat.enable({call})\n"
            "except pleat.PleatError as error: print(error)\n"
            "print(*[pleat.stats()['options'][k] for k in ('bits', 'when', 'seed')], step() > 0)\n"
            for call in calls
        )
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[1::2] == ["8 release 0 True"] * len(calls)
    for message, words in zip(lines[::2], calls.values(), strict=True):
        assert words in message


@pytest.mark.parametrize(
    "value, item",
    [
        (4, b'k:"4"'),
        (True, b'k:"1"'),
        ("", b'k:""'),
        (" a,b:c\n", b'k:" a,b:c\n"'),
        ('\\"', b'k:"\\\\\\""'),
        (pathlib.Path("/caf\u00e9"), b'k:"/caf\xc3\xa9"'),
        (b"/\xff'", b"k:\"/\xff'\""),
        (os.fsdecode(b"/\xff"), b'k:"/\xff"'),
    ],
)
def test_a_value_of_any_kind_is_spelled_as_the_parser_reads_it(package, value, item):
    assert package._spell("k", value) == item


@pytest.mark.parametrize("key, value", [("k", "a\0"), ("k", b"\0"), ("k", "\ud800"), ("a:b", 1), ("a,b", 1), ("", 1)])
def test_what_no_item_can_hold_is_refused(package, key, value):
    with pytest.raises(package.PleatError):
        package._spell(key, value)


def test_by_hand_a_result_that_its_own_node_saves_gets_its_proof_from_the_next_layers(python):
    done = python(
        "import json, torch, pleat\n"
        "layers = [torch.nn.Linear(200, 200) for _ in range(4)]\n"
        "pleat.enable(bits=4, min_bytes=0)\n"
        "h = torch.linspace(-1, 1, 300 * 200).reshape(300, 200)\n"
        "for layer in layers: h = layer(h).sigmoid()\n"
        "layers[0](h).sum().backward()\n"
        "print(json.dumps(pleat.stats()['exact']))\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"may_bear_noise": {"storages": 4, "bytes": 4 * 300 * 200 * 4}, "poles_after_proof": 0}


LINEAR = """
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return x * w
    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None
layers = [torch.nn.Linear(200, 200) for _ in range(3)]
def exact(function):
    before = pleat.stats().get("exact", {})
    h = torch.nn.functional.silu(layers[0](torch.linspace(-1, 1, 300 * 200).reshape(300, 200)))
    h = function.apply(h, torch.ones(300, 200))
    h = layers[1](h) * 2
    layers[2](h).sum().backward()
    after = pleat.stats().get("exact", {})
    return {k: after[k]["bytes"] - before.get(k, {"bytes": 0})["bytes"] for k in after if isinstance(after[k], dict)}
"""


def test_a_class_that_was_trusted_before_pleat_was_switched_on_lets_paths_pass_by_hand(python):
    done = python(
        "import json, torch, pleat\n" + LINEAR
        + "linear = pleat.linear(type('Trusted', (Product,), {}), closes=True)\n"
        + "exact(linear), pleat.enable(bits=4, min_bytes=0)\n"
        + "print(json.dumps([exact(Product), exact(linear)]))"
    )
    assert (done.returncode, done.stderr) == (0, "")
    plain, trusted = json.loads(done.stdout)
    assert plain["function_behind"] == 300 * 200 * 4 == trusted["may_bear_noise"] - plain["may_bear_noise"]
    assert trusted["function_behind"] == 0


@pytest.mark.parametrize(
    "variables, encodes",
    [({}, False), ({"PLEAT_CONF": "bits:4"}, True), ({"PLEAT_CONF": "bits:4", "PLEAT_DISABLE": "1"}, False),
     *(pytest.param({"PLEAT_CONF": "bits:4", "PLEAT_DISABLE": word}, encodes, marks=pytest.mark.rotating(set="long processes"))
       for word, encodes in [("true", False), ("0", True)])],
)
def test_torch_loads_it_by_itself_only_when_asked(python, variables, encodes):
    done = python("import torch\nimport sys; loaded = 'pleat' in sys.modules\nimport pleat\n" + STEP + "print(step() > 0, loaded)", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{encodes} True\n"  # torch imports every backend's entry point


def test_preload_and_entry_point_install_once(python, site):
    preload = {"LD_PRELOAD": str(site / "pleat" / "lib" / "libpleat.so"), "PLEAT_CONF": "bits:4,verbose:1"}
    done = python("import torch, pleat\n" + STEP + "pleat.enable()\nprint(step() > 0, pleat.stats()['interposed'])", **preload)
    assert (done.returncode, done.stdout) == (0, "True 1\n")
    assert done.stderr.count("pleat: report") == 1


def test_without_a_bridge_for_this_torch_scripts_run_and_enable_says_why(python, site, tmp_path):
    packages = tmp_path / "site"
    shutil.copytree(site, packages, ignore=shutil.ignore_patterns("libpleat_bridge*"))
    done = python("import torch; print(torch.ones(3).sum().item())", packages=packages, PLEAT_CONF="bits:4")
    assert (done.returncode, done.stdout) == (0, "3.0\n")
    assert done.stderr.startswith("pleat: no bridge for torch 2.") and done.stderr.count("\n") == 1
    assert done.stderr.endswith("; running without Pleat\n")
    done = python("import torch, pleat\ntry: pleat.enable()\nexcept pleat.PleatError as e: print(e)", packages=packages)
    assert (done.returncode, done.stderr) == (0, "") and "no bridge for torch 2." in done.stdout


@pytest.mark.parametrize(
    "modules, line",
    [((), "pleat: scikit-build-core is missing"), (("scikit_build_core",), "pleat: there is no torch in ")],
)
def test_the_build_backend_ends_with_one_line_where_it_cannot_build(tmp_path, modules, line):
    for name in modules:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "build.py").write_text("def build_wheel(*a): raise AssertionError('reached')\n")
    shutil.copy(REPOSITORY / "tools" / "packaging" / "pleat_build.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import pleat_build; pleat_build.build_wheel('.')"],
        cwd=tmp_path, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and done.stderr.startswith(line) and done.stderr.count("\n") == 1
