"""Test files of the host with device "cuda"."""

import importlib
import pathlib
import sys
import tempfile

import pytest

import conftest

pytest_plugins = ("simulated",)
pytestmark = pytest.mark.rotating(set="files of the host on a device", share=4)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "whole_process"))

OF_THE_HOST = ("test_a_tensor_less_at_the_peak_of_backward",)  # it measures the host's memory
# What the simulation lacks, and scripts that are the host's.
LACKING = ("SIMULATED CUDA: ", "can't convert cuda:0 device type tensor to numpy")
FILES = ("test_normalisation", "test_returned_gradients", "test_hooks", "test_threads", "test_in_place_gradients")


class OnDevice(conftest.Result):
    def active(self, *, released=1, encoded=1):
        """Without loss a device holds raw what has no shorter form, where the host may copy it."""
        self.check()
        if "bits:off" not in self.conf:
            held = self.records("held") if "lossless" in self.conf else 0
            assert self.records("encoded") + held >= encoded, self.stats
        assert self.records("released") >= released, self.stats
        return self


class DeviceRunner(conftest.Runner):
    """Runs scripts as the host's, on the simulation."""

    def __init__(self, run, under_pleat, folder):
        self.stock, self.under_pleat, self.folder, self.cached_stock = run, under_pleat, folder, {}

    def pair(self, source, *, conf=conftest.LOSSY, **options):
        stock = self.run(source, preload=False, **options)
        lacking = [line for line in stock.stderr.splitlines() if any(word in line for word in LACKING)]
        if stock.returncode and lacking:
            pytest.skip(f"in stock too: {lacking[0][:200]}")
        return conftest.Pair(stock, self.run(source, conf=conf, **options))

    def run(self, source, *, conf=conftest.LOSSY, preload=True, timeout=60, threads=1, args=(), **more):
        if more:
            pytest.skip("of a process of its own")
        results = pathlib.Path(tempfile.mkdtemp(prefix="result_", dir=self.folder))
        variables = {"PLEAT_TEST_RESULTS": str(results), "PLEAT_TEST_ON_DEVICE": "1"}
        options = {"variables": variables, "timeout": timeout, "wind_down": True}
        words = (HERE / "on_device.py", self._path(source), *args)
        outcome = self.under_pleat(*words, conf=f"cuda:1,{conf}", **options) if preload else self.stock(*words, **options)
        return OnDevice(outcome.stdout, outcome.stderr, outcome.code, preload, conf, results)


@pytest.fixture
def runner(simulate, under_pleat, tmp_path_factory, request):
    return DeviceRunner(simulate, under_pleat, tmp_path_factory.mktemp("scripts"))


for file in FILES:
    module = importlib.import_module(file)
    for name, thing in vars(module).items():
        if name.startswith("test_") and name not in OF_THE_HOST:
            globals()[f"{name}__{file.removeprefix('test_')}"] = thing
