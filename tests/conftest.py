"""Runs scripts in processes of their own, stock and under libpleat.so, and holds their results together.

    PLEAT_BUILD_DIR      build folder (default: build/ of the repository)
    PLEAT_TEST_PYTHON    interpreter with torch (default: venv/bin/python of the build folder)
    PLEAT_TEST_STOCK_ONLY=1   run every "Pleat" leg without Pleat: checks the scripts themselves
    CI=true              a missing build fails instead of being skipped
"""

import base64
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

import as_shipped
from as_shipped import pytest_itemcollected, pytest_runtest_protocol  # noqa: F401, hooks
from forked import ForkServer, close_all

pytest_plugins = ["cpu_seconds", "rotating"]

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
SUPPORT = REPOSITORY / "tests" / "whole_process"

LOSSLESS = "bits:lossless,min_bytes:0"
LOSSY = "bits:4,min_bytes:0"
OFF = "bits:off,min_bytes:0"

STOCK_ONLY = os.environ.get("PLEAT_TEST_STOCK_ONLY") == "1"
IN_CI = os.environ.get("CI", "").lower() in ("1", "true")


@pytest.fixture(scope="session")
def repository():
    return REPOSITORY


@pytest.fixture(scope="session")
def build_dir():
    return pathlib.Path(os.environ.get("PLEAT_BUILD_DIR", REPOSITORY / "build")).resolve()


@pytest.fixture(scope="session")
def test_python(build_dir):
    python = pathlib.Path(os.environ.get("PLEAT_TEST_PYTHON", build_dir / "venv" / "bin" / "python"))
    if not python.exists():
        missing(f"no interpreter at {python}: run tools/setup.sh or set PLEAT_TEST_PYTHON")
    return python.absolute()


@pytest.fixture(scope="session")
def torch_version(test_python):
    text = "import importlib.metadata as m, sys; sys.stdout.write(m.version('torch').split('+')[0])"
    return subprocess.run(
        [test_python, "-c", text], capture_output=True, text=True, check=True, env=_script_environment()
    ).stdout


@pytest.fixture(scope="session")
def command(build_dir):
    """Path of `pleat`. Skips (or fails, in CI) if it is not built."""
    path = build_dir / "bin" / "pleat"
    if not path.exists():
        missing(f"{path} is not built")
    return path


@pytest.fixture(scope="session")
def preload_library(build_dir, request):
    """Path of libpleat.so. Skips (or fails, in CI) if it or the bridge of this torch is not built."""
    library = build_dir / "lib" / "libpleat.so"
    if STOCK_ONLY:
        return library
    version = ".".join(request.getfixturevalue("torch_version").split(".")[:2])
    for path in (library, build_dir / "lib" / f"libpleat_bridge_torch{version}.so"):
        if not path.exists():
            missing(f"{path} is not built")
    return library


def missing(reason):
    """Ends a test that cannot run: it fails in CI and is skipped elsewhere."""
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def clean_environment(*more):
    """The tests' environment without variables of Pleat or Python, and without those that start with one of `more`."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("PLEAT_", "PYTHON", *more))}


def _script_environment():
    """The environment of a script, without variables of the tests or of a launcher around them."""
    return clean_environment("LD_PRELOAD", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "PYTEST_")


def decode(value):
    if isinstance(value, dict):
        if "__array__" in value:
            data = numpy.frombuffer(base64.b64decode(value["data"]), dtype=value["__array__"])
            return data.reshape(value["shape"])
        return {key: decode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode(item) for item in value]
    return value


@dataclasses.dataclass
class Result:
    stdout: str
    stderr: str
    returncode: int
    preload: bool
    conf: str
    results: pathlib.Path

    def __post_init__(self):
        files = sorted(self.results.glob("*.json"))
        self.all_json = [decode(json.loads(file.read_text())) for file in files]
        shutil.rmtree(self.results)
        self.json = self.all_json[-1] if self.all_json else None

    @property
    def stats(self):
        return self.json["pleat_stats"]

    def records(self, name):
        return self.stats.get("records", {}).get(name, 0)

    def check(self):
        """The script ended well and printed its result."""
        assert self.returncode == 0, f"exit code {self.returncode}\n{self.stderr[-6000:]}"
        assert self.json is not None, f"no result reported\n{self.stdout[-2000:]}\n{self.stderr[-2000:]}"
        assert self.stats or not self.preload, f"Pleat did not start\n{self.stderr[-2000:]}"
        return self

    def active(self, *, released=1, encoded=1):
        """Pleat really took part: it released and encoded at least so many saved storages."""
        self.check()
        if STOCK_ONLY:
            return self
        assert self.stats is not None, f"the bridge was not loaded\n{self.stderr[-2000:]}"
        records = self.stats.get("records", {})
        assert records.get("released", 0) >= released, f"nothing released: {self.stats}"
        if "bits:off" not in (self.conf or ""):
            compressed = records.get("encoded", 0) + records.get("recomputed", 0)
            assert compressed >= encoded, f"nothing encoded: {self.stats}"
        return self


@dataclasses.dataclass
class Pair:
    stock: Result
    pleat: Result


def short_without_loss(script, conf):
    """The script for `conf`. Without loss its tensors have two values each: blocks of other floats have no payload and are
    held raw."""
    return script.replace("t.noise(", "t.two_values(") if "lossless" in conf else script


class Runner:
    def __init__(self, python, library_of, folder, addresses, draw, cpu_account):
        """addresses: folder of the servers of forked scripts, shared by all users of the same path."""
        self.python, self.library_of, self.folder, self.addresses = python, library_of, folder, addresses
        self.draw, self.cpu_account = draw, cpu_account
        self.cached_stock = {}
        self.fork_servers, self.starting = {}, threading.Lock()

    def _path(self, source):
        if isinstance(source, pathlib.Path):
            return source
        text = textwrap.dedent(source).lstrip("\n")
        path = self.folder / f"script_{hashlib.sha256(text.encode()).hexdigest()[:12]}.py"
        if not path.exists():  # never rewritten: the other script of a pair may be reading it
            draft = path.with_suffix(f".{threading.get_ident()}")
            draft.write_text(text)
            draft.replace(path)
        return path

    def environment(self, *, conf, preload, threads=1, extra=None):
        env = _script_environment()
        env["PYTHONPATH"] = str(SUPPORT)
        env["OMP_NUM_THREADS"] = str(threads)
        env["OMP_WAIT_POLICY"] = "passive"  # two scripts share two cores
        env["PYTHONHASHSEED"] = "0"
        if preload:
            env["LD_PRELOAD"] = str(self.library_of())
            if conf is not None:
                env |= as_shipped.variables_of(conf)
        env.update(extra or {})
        as_shipped.check(env)
        return env

    def run(
        self,
        source,
        *,
        conf=LOSSY,
        preload=True,
        env=None,
        timeout=180,
        threads=1,
        args=(),
        launcher=(),
        limits=None,
        fresh=False,
    ):
        """Runs a script (source text or path) in a process of its own. Without further requests it is a fork of a process
        that has imported torch; tests of starts, ends and memory avoid that by `fresh`. Forks under Pleat wind down like any
        interpreter on their day of ten, and if that ends a trace; forks of stock never."""
        preload = preload and not STOCK_ONLY
        forked = not (fresh or env or launcher or limits)
        results = pathlib.Path(tempfile.mkdtemp(prefix="result_", dir=self.folder))
        variables = {"PLEAT_TEST_RESULTS": str(results)}
        if forked:
            if preload and conf is not None:
                variables |= as_shipped.variables_of(conf)
            server, path = self.fork_server(preload, threads), self._path(source)
            drawn = self.draw.includes(f"{path.name} {conf} {args}")
            wind_down = preload and (drawn or "trace:" in (conf or ""))
            stdout, stderr, code, seconds = server.run(path, args, variables, timeout, wind_down)
            self.cpu_account.note(seconds)
        else:
            environment = self.environment(conf=conf, preload=preload, threads=threads, extra=env) | variables
            command = [str(self.python), *launcher, str(self._path(source)), *map(str, args)]
            stdout, stderr, code = self._run_fresh(command, environment, limits, timeout)
        if code is None:
            code = -signal.SIGKILL
            stderr += f"\n*** killed after {timeout} s ***".encode()
        return Result(
            stdout.decode(errors="replace"),
            stderr.decode(errors="replace"),
            code,
            preload,
            conf,
            results,
        )

    def _run_fresh(self, command, environment, limits, timeout):
        """Output, errors and exit code as of ForkServer.run."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=self.folder,
            start_new_session=True,
            preexec_fn=limits,
        )
        try:
            return *process.communicate(timeout=timeout), process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return *process.communicate(), None

    def fork_server(self, preload, threads=1):
        """The server of forked scripts, started if it does not run yet."""
        name = f"{'pleat' if preload else 'stock'}{threads}"
        with self.starting:
            server = self.fork_servers.get(name)
            if server is None or server.ended:
                options = {}
                if preload:
                    library = self.library_of()
                    options = {"library": library, "late_start": library.with_name("libtest_late_start.so")}
                    if not options["late_start"].exists():
                        missing(f"{options['late_start']} is not built")
                environment = self.environment(conf=None, preload=False, threads=threads)
                server = self.fork_servers[name] = ForkServer(
                    str(self.addresses / name), self.python, environment, self.addresses, **options
                )
        return server

    def close(self):
        with self.cpu_account.noted_before():
            close_all(self.fork_servers.values())

    def pair(self, source, *, conf=LOSSY, **options):
        """The same script, stock and under Pleat (in parallel; stock once per script and options)."""
        if not STOCK_ONLY:
            self.library_of()
        key = repr((str(self._path(source)), sorted(options.items(), key=repr)))
        with ThreadPoolExecutor(2) as pool:
            stock = self.cached_stock.get(key) or pool.submit(
                self.run, source, preload=False, **options
            )
            pleat = self.run(source, conf=conf, preload=True, **options)
            if not isinstance(stock, Result):
                stock = self.cached_stock[key] = stock.result()
        return Pair(stock, pleat)


def shared_folder(tmp_path_factory):
    """A folder of this test run, shared by all workers of pytest-xdist."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own


@pytest.fixture(scope="session")
def runner(test_python, request, tmp_path_factory, draw, cpu_account):
    def library():
        return request.getfixturevalue("preload_library")

    folder = tmp_path_factory.mktemp("scripts")
    runner = Runner(test_python, library, folder, shared_folder(tmp_path_factory), draw, cpu_account)
    yield runner
    runner.close()


@pytest.fixture
def run_script(runner):
    return runner.run


@pytest.fixture
def run_pair(runner):
    return runner.pair


# Comparisons of two scripts' results.


def flatten(value, where=""):
    if isinstance(value, dict):
        for key in sorted(value):
            yield from flatten(value[key], f"{where}.{key}")
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from flatten(item, f"{where}[{position}]")
    else:
        yield where, value


def assert_identical(mine, stock):
    """Bit for bit: arrays with their NaNs and zero signs, numbers, texts; at any depth."""
    a, b = dict(flatten(mine)), dict(flatten(stock))
    a = {k: v for k, v in a.items() if not k.startswith(".pleat_stats")}
    b = {k: v for k, v in b.items() if not k.startswith(".pleat_stats")}
    assert a.keys() == b.keys()
    for key in b:
        x, y = a[key], b[key]
        if isinstance(y, numpy.ndarray):
            assert x.dtype == y.dtype and x.shape == y.shape, key
            if x.tobytes() != y.tobytes():
                with numpy.errstate(all="ignore"):
                    worst = numpy.abs(x.astype(complex) - y.astype(complex)).max()
                raise AssertionError(f"{key} differs from stock by up to {worst:.3g}")
        else:
            assert x == y or (x != x and y != y), f"{key}: {x!r}, stock {y!r}"


def assert_close(mine, stock, relative):
    """Every array within `relative` of stock's in norm, and not-finite exactly where stock is. Arrays that are mere rounding
    relative to the largest (a bias before a batch norm) need not agree."""
    a, b = dict(flatten(mine)), dict(flatten(stock))
    assert a.keys() == b.keys()
    norms = [numpy.linalg.norm(y[numpy.isfinite(y)]) for y in map(numpy.asarray, b.values())]
    floor = 5e-3 * max(norms, default=0.0) + 1e-12
    for key in b:
        x, y = numpy.asarray(a[key]), numpy.asarray(b[key])
        assert x.shape == y.shape, key
        if y.dtype == bool:
            assert (x == y).all(), key
            continue
        finite = numpy.isfinite(y)
        assert (numpy.isfinite(x) == finite).all(), f"{key}: not finite elsewhere than stock"
        x, y = x[finite], y[finite]
        distance, size = numpy.linalg.norm(x - y), numpy.linalg.norm(y)
        assert distance <= relative * size + floor, f"{key}: off by {distance / max(size, 1e-30):.3f} of its norm"


@pytest.fixture
def identical():
    return assert_identical


@pytest.fixture
def close():
    return assert_close


# Figures that are printed at the end although their tests passed.


@pytest.fixture(scope="session")
def figures(request):
    """Lines for the summary."""
    return request.config.stash.setdefault(FIGURES, [])


FIGURES = pytest.StashKey()


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one of pytest-xdist's workers
        session.config.workeroutput["figures"] = session.config.stash.get(FIGURES, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    node.config.stash.setdefault(FIGURES, []).extend(getattr(node, "workeroutput", {}).get("figures", []))


def pytest_terminal_summary(terminalreporter, config):
    lines = config.stash.get(FIGURES, [])
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
