"""Fixtures that run scripts on the simulated CUDA, in forks of one process that has imported torch on it."""

import dataclasses
import itertools
import json
import pathlib
import subprocess
import textwrap
import threading

import numpy
import pytest

from as_shipped import variables_of
from codings import NOISE, with_kernels
from conftest import IN_CI, assert_close, assert_identical, clean_environment, decode, flatten
from forked import ForkServer, close_all

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Outcome:
    stdout: str
    stderr: str
    code: int
    facts: dict  # the output of --json; None if there is none

    @property
    def reports(self):
        return self.facts["oracle_reports"]

    @property
    def result(self):
        """The JSON of the last line that the script printed."""
        assert self.code == 0, f"exit code {self.code}\n{self.stderr[-4000:]}"
        return decode(json.loads(self.stdout.splitlines()[-1]))

    @property
    def values(self):
        """The values that the script reported with `emit` of pleat_test_support, without Pleat's counters."""
        return {name: value for name, value in self.result.items() if name != "pleat_stats"}

    @property
    def stats(self):
        """Pleat's counters from the same report."""
        return self.result["pleat_stats"]

    def calls(self, caller):
        """Number of calls by `caller` ("torch", "Pleat", "other") of each function that it called."""
        return {name: calls[caller] for name, calls in self.facts["calls"].items() if calls[caller]}


class Simulator:
    def __init__(self, stand_ins, environment, python, folder, cpu_account):
        self.stand_ins, self.environment, self.python = stand_ins, environment, python
        self.folder, self.cpu_account = folder, cpu_account
        self.servers, self.numbers, self.of_stock = {}, itertools.count(1), {}
        self.starting = threading.Lock()

    def server(self, preload):
        """preload: libraries before the stand-ins and the library that starts Pleat in a fork, or None. Any thread, like run()."""
        with self.starting:
            if preload not in self.servers:
                libraries = (self.stand_ins / "preload").read_text()
                options = {"library": f"{preload[0]}:{libraries}", "late_start": preload[1]} if preload else {}
                environment = self.environment | ({} if preload else {"LD_PRELOAD": libraries})
                address = str(self.folder / f"server{len(self.servers)}")
                self.servers[preload] = ForkServer(address, self.python, environment, self.folder, **options)
            return self.servers[preload]

    def run(self, source, *args, shadow=True, preload=None, conf=None, variables=(), timeout=120, wind_down=False, **options):
        """Runs a script, given by its text or path, with options of simulate.py by name.
        variables: environment variables in addition to PLEAT_CONF. wind_down: the process ends normally (tests/forked.py)."""
        number = next(self.numbers)
        script = source
        if not isinstance(source, pathlib.Path):
            script = self.folder / f"script{number}.py"
            script.write_text(textwrap.dedent(source))
        facts = self.folder / f"facts{number}.json"
        words = ["--json", facts, *(["--shadow"] if shadow else [])]
        for name, value in options.items():
            words += [f"--{name}", value]
        variables = (variables_of(conf) if conf else {}) | dict(variables)
        out, err, code, seconds = self.server(preload).run(
            HERE / "simulate.py", [*words, script, *args], variables, timeout, wind_down=wind_down, start=bool(preload)
        )
        self.cpu_account.note(seconds)
        read = json.loads(facts.read_text()) if facts.exists() else None
        return Outcome(out.decode(errors="replace"), err.decode(errors="replace"), code, read)

    def once(self, source, *args, **options):
        """Like run(), stock and without lag; later calls return the first outcome."""
        key = repr((source, args, sorted(options.items())))
        if key not in self.of_stock:
            outcome = self.run(source, *args, **options)
            if outcome.code is None:  # the simulation itself hangs among freeing threads, once in some thousand runs
                outcome = self.run(source, *args, **options)
            self.of_stock[key] = outcome
        return self.of_stock[key]

    def close(self):
        with self.cpu_account.noted_before():
            close_all(self.servers.values())


@pytest.fixture(scope="session")
def stand_ins(build_dir, torch_version):
    """The folder of the stand-ins for the tests' torch."""
    version = ".".join(torch_version.split(".")[:2])
    folder = build_dir / "lib" / "simulated_cuda" / f"torch{version}"
    for file in ("preload", "sim-values.so"):
        if not (folder / file).exists():
            (pytest.fail if IN_CI else pytest.skip)(f"{folder / file} is not built")
    return folder


@pytest.fixture(scope="session")
def simulation_environment(build_dir, repository):
    environment = clean_environment("LD_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "PYTEST_", "CUDA_")
    support = repository / "tests" / "whole_process"
    return environment | {
        "PLEAT_BUILD_DIR": str(build_dir), "PYTHONPATH": str(support), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
    }  # fmt: skip


@pytest.fixture(scope="session")
def simulator(stand_ins, simulation_environment, test_python, tmp_path_factory, cpu_account):
    one = Simulator(stand_ins, simulation_environment, test_python, tmp_path_factory.mktemp("simulated"), cpu_account)
    yield one
    one.close()


@pytest.fixture(scope="session")
def simulate(simulator):
    return simulator.run


@pytest.fixture(scope="session")
def under_pleat(simulator, preload_library):
    """Runs a script like `simulate`, with Pleat preloaded; `conf` is its PLEAT_CONF."""

    def run(source, *args, conf, **options):
        preload = (preload_library, preload_library.with_name("libtest_late_start.so"))
        return with_kernels(simulator.run(source, *args, preload=preload, conf=conf, **options))

    return run


@pytest.fixture(scope="session")
def fresh(stand_ins, simulation_environment, test_python, preload_library, tmp_path_factory):
    """Runs simulate.py in a process of its own with the variables `more`; with Pleat if there is a `conf`."""
    folder = tmp_path_factory.mktemp("fresh")

    def run(*words, conf=None, **more):
        libraries = (stand_ins / "preload").read_text()
        preload = f"{preload_library}:{libraries}" if conf else libraries
        environment = simulation_environment | {"LD_PRELOAD": preload} | variables_of(conf or "") | more
        command = [test_python, HERE / "simulate.py", *map(str, words)]
        return with_kernels(subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True))

    return run


def arrays(values, wanted):
    """The arrays (or the other values) among `values`, by their place."""
    return {place: value for place, value in flatten(values) if isinstance(value, numpy.ndarray) == wanted}


@pytest.fixture
def same_as_stock(simulator, under_pleat):
    """Runs a script that reports with `emit`, under Pleat and, once, stock; lag and seed apply to Pleat's run.
    Values must be equal, the oracle silent, and Pleat must have judged the script's saves."""

    def check(script, conf, *, lag=0, seed=0, saves=True, **options):
        stock = simulator.once(script, **options)
        assert stock.reports == []
        mine = under_pleat(script, conf=conf, lag=lag, seed=seed, **options)
        assert mine.values.keys() == stock.values.keys(), mine.stderr
        if "bits:4" in conf:
            assert_close(*(arrays(outcome.values, True) for outcome in (mine, stock)), NOISE)
            assert arrays(mine.values, False) == arrays(stock.values, False)
        else:
            assert_identical(mine.values, stock.values)
        assert mine.reports == []
        assert "left to stock" not in mine.stderr
        if saves:
            assert mine.stats["records"]["packs"] > 0, mine.stats
        return mine

    return check
