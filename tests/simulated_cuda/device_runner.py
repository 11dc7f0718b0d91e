"""Runs the scripts of the host's tests on the simulated CUDA, for tests that share them."""

import pathlib
import tempfile

import pytest

from conftest import LOSSY, Result, Runner


class DeviceResult(Result):
    def active(self, *, released=1, encoded=1):
        """Without loss, a device holds tensors without a shorter form raw, and the host can copy them."""
        self.check()
        if "bits:off" not in self.conf:
            held = self.records("held") if "lossless" in self.conf else 0
            assert self.records("encoded") + held >= encoded, self.stats
        assert self.records("released") >= released, self.stats
        return self


class DeviceRunner(Runner):
    """Runs the scripts of the host's tests on the simulation, where the oracle must stay silent.
    launcher: the script that runs a script, like on_device.py; empty for scripts that use devices themselves."""

    def __init__(self, simulate, under_pleat, folder, launcher=()):
        self.simulate, self.under_pleat, self.folder, self.launcher = simulate, under_pleat, folder, launcher
        self.cached_stock = {}

    def library_of(self):
        """Not needed: `under_pleat` loads the library."""

    def run(self, source, *, conf=LOSSY, preload=True, timeout=120, threads=1, args=(), **more):
        if more:
            pytest.skip("of a process of its own")
        results = pathlib.Path(tempfile.mkdtemp(prefix="result_", dir=self.folder))
        variables = {"PLEAT_TEST_RESULTS": str(results), "PLEAT_TEST_ON_DEVICE": "1"}
        options = {"variables": variables, "timeout": timeout, "wind_down": True}
        words = (*self.launcher, self._path(source), *args)
        if preload:
            outcome = self.under_pleat(*words, conf=f"cuda:1,{conf}", **options)
        else:
            outcome = self.simulate(*words, **options)
        assert outcome.facts is None or outcome.reports == []
        return DeviceResult(outcome.stdout, outcome.stderr, outcome.code, preload, conf, results)
